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

// What a run on these hosts would take. Bytes of one rank, seconds.
struct PlanEstimate {
  struct Memory {
    parallel::MemoryUse states;
    LayerLevels levels;
    int64_t activations = 0;   // kept from forward to backward
    int64_t cast_weights = 0;  // kept in FP8, of this many layers:
    int64_t kept_casts = 0;
    int64_t workspace = 0;
    int64_t context = 0;  // of CUDA and NCCL, on a CPU of the program, as usual
    int64_t total = 0;    // of the GPU, on a CPU of a rank's process
    int64_t of_gpu = 0;   // on a CPU a rank's share of the host's; 0: not known
    int64_t host = 0;     // of all ranks of a host
    int64_t of_host = 0;  // 0: not known
    bool fits = true;
    std::string problem;  // what is short, and what would fit; empty where it fits
  };
  struct Checkpoint {
    int64_t bytes = 0;
    int64_t of_base = 0;            // the frozen base of adapters, which is random without --init_from
    std::optional<double> seconds;  // to write it, all hosts together
    bool by_calibration = false;    // by the disk of the calibration's host
  };

  int64_t parameters = 0;
  int64_t tokens_per_step = 0;
  int64_t micro_batch = 1, accumulation = 1;
  Memory memory;
  SimulatedStep step;
  double error = 0;         // relative, of the step's time: half of an interval
  double extrapolated = 0;  // of the kernels' time: of sizes far from all that were measured
  double host_bound = 0;    // of a micro-batch's time: what a host saves that queues kernels twice as fast
  double slow_host = 0;     // and what one adds that takes twice as long; 0 by a calibration of the user's own
  double tokens_per_second_per_gpu = 0;
  std::optional<double> mfu;
  Checkpoint checkpoint;
  std::string bottleneck;
  double host_ratio = 1;  // share of the parameters that the host updates, of those that it may
};

// What a plan may assume beyond its configuration.
struct PlanAssumptions {
  double straggler_factor = 1;
  double network_factor = 1;
  std::optional<double> disk_rate;  // GB/s of a host
};

// `setup`: with its layout. Without a calibration, and where the memory does not suffice, there is no step: its time
// is 0.
PlanEstimate estimate_plan(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                           const PlanAssumptions& assumptions);

// The layout that the run would choose on these hosts.
LayoutChoice layout_of(const RunSetup& setup, const PlanMachine& machine, const Calibration* calibration,
                       const PlanAssumptions& assumptions);

}  // namespace mpzero::plan
