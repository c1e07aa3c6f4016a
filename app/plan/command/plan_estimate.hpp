#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/memory/memory_plan.hpp"
#include "app/plan/calibration.hpp"
#include "app/plan/command/plan_machine.hpp"
#include "app/plan/simulation/simulated_run.hpp"

namespace mpzero::plan {

// Estimated memory and times of a run on these hosts. Bytes per rank, seconds.
struct PlanEstimate {
  struct Memory {
    parallel::MemoryUse states;
    LayerLevels levels;
    int64_t activations = 0;       // kept from forward to backward
    int64_t host_activations = 0;  // likewise, on the host
    int64_t cast_weights = 0;      // weights kept in FP8, for `kept_casts` layers
    int64_t kept_casts = 0;
    int64_t workspace = 0;
    int64_t context = 0;  // typical, of CUDA and NCCL; on a CPU, of the program
    int64_t total = 0;    // of the GPU; on a CPU, of a rank's process
    int64_t of_gpu = 0;   // capacity; on a CPU, a rank's share of the host's; 0: unknown
    int64_t host = 0;     // all ranks of a host
    int64_t of_host = 0;  // capacity; 0: unknown
    bool fits = true;
    // GPU memory in use beyond the limit of --recompute auto, which leaves a margin; 0 if the margin is free.
    int64_t beyond_margin = 0;
    std::string problem;  // what does not fit, and what would; empty if the run fits
  };
  struct Checkpoint {
    int64_t bytes = 0;
    int64_t of_base = 0;            // for the frozen base of adapters, which is random without --init_from
    std::optional<double> seconds;  // write time, all hosts together
    bool by_calibration = false;    // `seconds` assumes the disk of the calibration's host
  };

  int64_t parameters = 0;
  int64_t tokens_per_step = 0;
  int64_t micro_batch = 1, accumulation = 1;
  Memory memory;
  SimulatedStep step;
  double error = 0;         // relative error of the step's time: half the width of the interval
  double extrapolated = 0;  // share of the kernels' time at sizes far from all measured ones
  double host_bound = 0;    // share of a micro-batch's time saved by a host that queues kernels twice as fast
  double slow_host = 0;     // share added by a host that takes twice as long; 0 with the user's own calibration
  double tokens_per_second_per_gpu = 0;
  std::optional<double> mfu;
  Checkpoint checkpoint;
  std::string bottleneck;
  double host_ratio = 1;  // share of the offloaded parameters that the host updates
};

// Assumptions of a plan beyond its configuration.
struct PlanAssumptions {
  double straggler_factor = 1;
  double network_factor = 1;
  std::optional<double> disk_rate;  // GB/s per host
};

// `setup`: including its layout. Without a calibration, or if the run does not fit, the step's time is 0.
PlanEstimate estimate_plan(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                           const PlanAssumptions& assumptions);

// The layout that the run would choose on these hosts.
LayoutChoice layout_of(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                       const PlanAssumptions& assumptions);

}  // namespace mpzero::plan
