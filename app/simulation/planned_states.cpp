#include "app/simulation/planned_states.hpp"

#include <memory>

#include "app/simulation/simulated_communicator.hpp"
#include "app/simulation/simulated_device.hpp"
#include "app/simulation/simulated_host_updater.hpp"

namespace mpzero::plan {

parallel::MemoryUse planned_states(const std::vector<UnitSpec>& units, parallel::ZeroOptions options,
                                   const parallel::ParallelLayout& layout, const std::vector<size_t>& uses,
                                   int peer_gpus) {
  const SimulatedDevice device({}, options.device.type());
  // If NCCL uses copy engines, as on peer GPUs, the received shards require memory before they are summed.
  const Links links{.peer_access = options.device.is_cuda() && layout.ranks_per_node <= peer_gpus};
  // On the CPU, all memory is host memory.
  if (options.device.is_cpu()) {
    options.optimizer_placement = options.parameter_placement = parallel::Placement::kDevice;
  }
  options.device = SimulatedDevice::device();
  options.host_update.make = [](const std::vector<parallel::OptimizerShard*>& shards,
                                const parallel::HostUpdater::Options& of_host) {
    return std::make_unique<SimulatedHostUpdater>(shards, of_host, SimulatedDevice::nothing);
  };
  BusyLink link;
  SimulatedCommunicator within({.group = {.hosts = 1, .per_host = layout.ranks_per_node}, .links = links}, link);
  SimulatedCommunicator between({.group = {.hosts = layout.nodes, .per_host = 1}, .links = links}, link);
  const parallel::Levels levels = layout.nodes > 1 ? parallel::Levels(within, between) : parallel::Levels(within);
  parallel::ZeroEngine engine(units, options, levels, levels);
  engine.parameters().plan(engine.parts().uses(uses));
  return engine.memory_use();
}

}  // namespace mpzero::plan
