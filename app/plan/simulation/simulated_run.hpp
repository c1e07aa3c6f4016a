#pragma once

#include <array>
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

// Input of a simulation: one rank of a run.
struct SimulatedRun {
  model::ModelConfig model;
  parallel::ZeroOptions options;  // options of the run; the device is ignored
  parallel::ParallelLayout layout;
  Group ranks;  // placement on hosts
  int64_t micro_batch = 1;
  int64_t seq_length = 1;
  std::vector<model::Recompute> recompute;  // one per layer
  int64_t memory_for_parameters = 0;        // bytes left free by the memory plan, see ParameterStore::use_memory()
  bool gather_limits_automatic = false;
  UnitTimes times;
  SimulatedDevice::Costs costs;
  std::function<double(int64_t)> host_adamw;  // seconds to update N parameters with this rank's share of the cores
  Links links;
  CollectiveSeconds within_host = {};  // measured between all ranks of a host; empty: not measured
  double straggler_factor = 1;         // slowdown of compute on the slowest rank
  double network_factor = 1;           // slowdown of every collective
  bool every_micro_batch = false;      // simulate every micro-batch instead of extrapolating
};

// Times of one step in steady state, in seconds.
struct SimulatedStep {
  double seconds = 0;
  StepSplit split;                    // breakdown, as in the log of a run
  std::array<double, kWorks> busy{};  // by Work, including work that overlaps with other streams
  double head = 0;                    // LM head and loss, included in `busy`
  struct CollectiveTime {
    double seconds = 0;
    int64_t calls = 0;
  };
  std::map<std::string, CollectiveTime> collectives;
  parallel::MemoryUse memory;
  int64_t simulated_micro_batches = 0;  // micro-batches of a simulated step, summed over all simulations

  double of(Work work) const { return busy[static_cast<size_t>(work)]; }
};

// Runs ZeroEngine and TrainingPass on a simulated device. Simulates micro-batches of a step until each additional
// micro-batch takes the same time, and extrapolates the remaining micro-batches.
SimulatedStep simulate(const SimulatedRun& run);

}  // namespace mpzero::plan
