#include "app/plan/command/predicted_step.hpp"

#include <exception>

#include "app/machine/instances.hpp"
#include "app/machine/system.hpp"
#include "app/plan/command/rates.hpp"

namespace mpzero::plan {

PlanMachine machine_of(const PlannedRun& run) {
  const std::string& network = run.network.empty() ? run.setup.config.network : run.network;
  return run.processor.empty()
             ? machine_of_run(run.gpu, run.gpu_bytes, run.hosts, run.per_host, doctor::instance_type(doctor::System{}),
                              network)
             : machine_of_cpu_run(run.processor, run.threads, run.host_bytes, run.hosts, run.per_host, network);
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
    const PlanEstimate plan = plan_of(run, layout);
    if (!plan.memory.fits) return std::nullopt;
    return PredictedStep{.seconds = plan.step.seconds, .error = plan.error};
  } catch (const std::exception&) {  // the layout choice then compares the bytes between hosts
    return std::nullopt;
  }
}

}  // namespace mpzero::plan
