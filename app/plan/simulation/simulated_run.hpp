#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/log/step_timer.hpp"
#include "app/plan/unit_times.hpp"
#include "app/simulation/network_model.hpp"
#include "app/simulation/simulated_communicator.hpp"
#include "app/simulation/simulated_device.hpp"
#include "parallel/zero/levels.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero::plan {

// What is simulated: one rank of a run.
struct SimulatedRun {
  model::ModelConfig model;
  parallel::ZeroOptions options;  // of a GPU; the device is replaced
  parallel::ParallelLayout layout;
  Group ranks;  // where they are
  int64_t micro_batch = 1;
  int64_t seq_length = 1;
  std::vector<model::Recompute> recompute;  // by layer
  int64_t memory_for_parameters = 0;        // that the plan of memory leaves; see ParameterStore::use_memory
  bool gather_limits_automatic = false;
  UnitTimes times;
  SimulatedDevice::Costs costs;
  std::function<double(int64_t)> host_adamw;  // seconds of so many parameters, with this rank's share of the cores
  Links links;
  CollectiveSeconds within_host = {};  // of all ranks of a host, where it was measured
  double straggler_factor = 1;         // of what computes: the slowest rank's, which all wait for
  double network_factor = 1;           // of every collective
  bool every_micro_batch = false;      // is simulated, also of a step that would follow from fewer
};

// One step of it, once steps repeat. Seconds.
struct SimulatedStep {
  double seconds = 0;
  StepSplit split;  // as the log of a run has it
  // What ran, whether or not it held something up. Several streams run at a time.
  double matmuls = 0, attention = 0, elementwise = 0;
  double head = 0;  // of these three, what the LM head and the loss are
  double optimizer = 0, host_optimizer = 0;
  double down = 0, up = 0;  // between host and device
  struct CollectiveTime {
    double seconds = 0;
    int64_t calls = 0;
  };
  std::map<std::string, CollectiveTime> collectives;
  parallel::MemoryUse memory;
  int64_t simulated_micro_batches = 0;  // of one step, for these figures
};

// Runs ZeroEngine and TrainingPass on a simulated device. Of a step of many micro-batches as many as it takes until
// more of them add the same; the rest follows from these.
SimulatedStep simulate(const SimulatedRun& run);

}  // namespace mpzero::plan
