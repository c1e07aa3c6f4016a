#include "app/plan/estimate/predicted_step.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <exception>

#include "app/machine/instances.hpp"
#include "app/machine/system.hpp"
#include "app/plan/estimate/rates.hpp"
#include "base/error.hpp"
#include "base/words.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero::plan {

PlannedRun planned_run(const RunSetup& setup, const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host,
                       int64_t host_bytes, const std::string& network) {
  PlannedRun run{.setup = setup, .network_is_verified = !network.empty()};
  try {
    run.machine = machine_of_run(gpu, gpu_bytes, hosts, per_host, doctor::instance_type(doctor::System{}),
                                 network.empty() ? setup.config.network : network);
    if (host_bytes > 0) run.machine.host_bytes = host_bytes;
  } catch (const UserError& error) {
    run.problem = error.what();
  }
  return run;
}

PlannedRun planned_run(const RunSetup& setup, at::Device device, int per_host, int64_t host_bytes,
                       const std::string& network) {
  if (device.is_cpu()) {
    return {.setup = setup,
            .machine = machine_of_cpu_run(doctor::processor_name(), at::get_num_threads(), setup.hosts, per_host,
                                          setup.config.network)};
  }
  const parallel::GpuProperties gpu = parallel::gpu_properties(device.index());
  return planned_run(setup, gpu.name, gpu.memory_bytes, setup.hosts, per_host, host_bytes, network);
}

PlanEstimate plan_of(const PlannedRun& run, const parallel::ParallelLayout& layout,
                     const PlanAssumptions& assumptions) {
  if (!run.problem.empty()) throw UserError(run.problem);
  const Calibration calibration = calibration_of(run.machine, "");
  RunSetup setup = run.setup;
  setup.layout = layout;
  return estimate_plan(setup, run.machine, &calibration, assumptions);
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

std::string assumed_network_warning(const PlannedRun& run, const std::string& network) {
  const bool efa = network == "efa";
  const bool open = run.setup.config.zero.ranks_per_node.value_or(kRanksOfHost) == kRanksOfHost;
  // With an unknown GPU, the layout was not based on predictions.
  if (!open || !run.problem.empty() || run.machine.efa == efa) return "";
  return fmt::format(
      "the layout (shard group of {}) was chosen for {}, but the run uses {}; pass --network {} to choose the layout "
      "for this network.",
      counted(run.setup.layout.ranks_per_node, "rank"), efa ? "TCP" : "EFA", efa ? "EFA" : "TCP", network);
}

}  // namespace mpzero::plan
