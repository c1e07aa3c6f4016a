#include "app/plan/estimate/predicted_step.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <exception>

#include "app/machine/instances.hpp"
#include "app/machine/system.hpp"
#include "app/plan/estimate/rates.hpp"
#include "base/words.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero::plan {

PlannedRun planned_run(const RunSetup& setup, at::Device device, int per_host, int64_t host_bytes,
                       const std::string& network) {
  PlannedRun run{.setup = setup, .hosts = setup.hosts, .per_host = per_host, .network = network};
  if (device.is_cuda()) {
    const parallel::GpuProperties gpu = parallel::gpu_properties(device.index());
    run.gpu = gpu.name;
    run.gpu_bytes = gpu.memory_bytes;
    run.host_bytes = host_bytes;
  } else {
    run.processor = doctor::processor_name();
    run.threads = at::get_num_threads();
  }
  return run;
}

PlanMachine machine_of(const PlannedRun& run) {
  const std::string& network = run.network.empty() ? run.setup.config.network : run.network;
  if (!run.processor.empty()) return machine_of_cpu_run(run.processor, run.threads, run.hosts, run.per_host, network);
  PlanMachine machine =
      machine_of_run(run.gpu, run.gpu_bytes, run.hosts, run.per_host, doctor::instance_type(doctor::System{}), network);
  if (run.host_bytes > 0) machine.host_bytes = run.host_bytes;
  return machine;
}

PlanEstimate plan_of(const PlannedRun& run, const parallel::ParallelLayout& layout,
                     const PlanAssumptions& assumptions) {
  const PlanMachine machine = machine_of(run);
  const Calibration calibration = calibration_of(machine, "");
  RunSetup setup = run.setup;
  setup.layout = layout;
  return estimate_plan(setup, machine, &calibration, assumptions);
}

std::optional<PredictedStep> predicted_step(const PlannedRun& run, const parallel::ParallelLayout& layout) {
  try {
    return plan_of(run, layout).predicted();
  } catch (const std::exception&) {  // the layout choice then compares the bytes between hosts
    return std::nullopt;
  }
}

std::optional<bool> predicted_release(const PlannedRun& run) {
  if (!run.setup.config.may_release_gradients()) return std::nullopt;
  try {
    return plan_of(run, run.setup.layout).releases_gradients;
  } catch (const std::exception&) {  // the available memory then determines the choice
    return std::nullopt;
  }
}

std::string assumed_network_warning(const PlannedRun& run) {
  if (run.network.empty() || run.setup.config.zero.ranks_per_node.value_or(kRanksOfHost) != kRanksOfHost) return "";
  PlannedRun assumed = run;
  assumed.network.clear();
  try {
    const auto name = [](const PlanMachine& machine) { return machine.efa ? "EFA" : "TCP"; };
    const std::string before = name(machine_of(assumed)), now = name(machine_of(run));
    if (before == now) return "";
    return fmt::format(
        "the layout (shard group of {}) was chosen for {}, but the run uses {}; pass --network {} to choose the layout "
        "for this network.",
        counted(run.setup.layout.ranks_per_node, "rank"), before, now, run.network);
  } catch (const std::exception&) {  // unknown GPU: the layout was not based on predictions
    return "";
  }
}

}  // namespace mpzero::plan
