#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/memory/memory_estimate.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/estimate/plan_machine.hpp"
#include "app/plan/simulation/simulated_run.hpp"

namespace mpzero::plan {

// Estimated memory (bytes per rank) and times (seconds) of a run.
struct PlanEstimate {
  struct Memory : PlannedMemory {
    bool needs_host = false;  // --recompute auto fits only with activations on the host
    int64_t context = 0;      // typical use by CUDA and NCCL; on a CPU, by the program
    int64_t total = 0;        // GPU memory; on a CPU, memory of a rank's process
    int64_t of_gpu = 0;       // GPU capacity; on a CPU, a rank's share of host memory; 0: unknown
    int64_t host = 0;         // sum over all ranks of a host
    int64_t of_host = 0;      // host capacity; 0: unknown
    bool fits = true;
    // GPU memory that the run uses beyond the limit of --recompute auto; 0 if the run stays within the limit.
    int64_t beyond_margin = 0;
    // Returns the error and suggested changes; null if the run fits and leaves the margin.
    std::function<std::string()> problem = {};
  };
  struct Checkpoint {
    int64_t bytes = 0;
    int64_t of_base = 0;            // frozen base of adapters, stored only without --init_from
    std::optional<double> seconds;  // write time with all hosts
    bool by_calibration = false;    // true if `seconds` assumes the disk of the calibrated host
  };

  int64_t parameters = 0;
  int64_t tokens_per_step = 0;
  bool releases_gradients = false;
  Memory memory;
  SimulatedStep step;
  double error = 0;         // relative error of the step's time, e.g. 0.1 for +/- 10%
  double extrapolated = 0;  // share of kernel time at sizes far from any measured size
  double host_bound = 0;    // fraction of a micro-batch's time saved by halving launch times
  double slow_host = 0;     // fraction added by doubling launch times; 0 for a calibration by the user
  double tokens_per_second_per_gpu = 0;
  std::optional<double> mfu;
  Checkpoint checkpoint;
  std::string bottleneck;
  double host_ratio = 1;  // share of the offloaded parameters that the host updates

  // Returns std::nullopt if the run does not fit.
  std::optional<PredictedStep> predicted() const {
    return memory.fits ? std::optional(PredictedStep{.seconds = step.seconds, .error = error}) : std::nullopt;
  }
};

// Estimates a run with the layout of `setup`. The step's time is 0 without a calibration, or if the run does not fit.
// By default, the run releases gradients if it then still fits in memory and is at least 2% faster, or if it does not
// fit otherwise.
// Without a calibration, see MemoryEstimate::choose_release().
PlanEstimate estimate_plan(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                           const PlanAssumptions& assumptions);

// Returns the step time assuming that gradients are clipped in every step, or std::nullopt if clipping does not affect
// it. `plan`: result of estimate_plan() with the same arguments.
std::optional<double> clipped_seconds(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                                      PlanAssumptions assumptions, const PlanEstimate& plan);

// Returns the layout that the run would choose on these hosts.
LayoutChoice layout_of(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                       const PlanAssumptions& assumptions);

}  // namespace mpzero::plan
