#include "app/plan/estimate/plan_beside_run.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <exception>

namespace mpzero::plan {
namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

// Describes the network that the plan assumes between hosts.
std::string network_between(const PlannedRun& run) {
  if (run.machine.nodes == 1) return "";
  return fmt::format("with {} between hosts{}", run.machine.efa ? "EFA" : "TCP",
                     run.network_is_verified ? ", as used by NCCL" : "");
}

}  // namespace

std::string beside(const StepSplit& planned, const StepSplit& measured, double error, const std::string& network) {
  struct Part {
    const char* name;
    double planned, measured;
    double difference() const { return measured - planned; }
  };
  const std::array parts = {Part{"forward", planned.forward, measured.forward},
                            Part{"backward", planned.backward, measured.backward},
                            Part{"optimizer", planned.optimizer, measured.optimizer},
                            Part{"waiting for parameters", planned.exposed_parameters, measured.exposed_parameters},
                            Part{"waiting for gradients", planned.exposed_gradients, measured.exposed_gradients},
                            Part{"data", planned.data, measured.data}};
  const Part* most = parts.data();
  std::string text =
      fmt::format("Plan vs. measured: step {} vs. {} ({:+.0f}%; expected error: {:.0f}%{})",
                  milliseconds(planned.total()), milliseconds(measured.total()),
                  100 * (measured.total() / planned.total() - 1), 100 * error, network.empty() ? "" : ", " + network);
  for (const Part& part : parts) {
    if (std::abs(part.difference()) > std::abs(most->difference())) most = &part;
    if (part.planned < 5e-5 && part.measured < 5e-5) continue;
    text += fmt::format(", {} {} vs. {}", part.name, milliseconds(part.planned), milliseconds(part.measured));
  }
  return text + fmt::format("; the largest difference is in {}: {:+.1f} ms", most->name, 1e3 * most->difference());
}

std::string plan_beside_run(const PlannedRun& run, const StepSplit& mean, bool clipped) {
  try {
    const PlanEstimate plan = plan_of(run, run.setup.layout, {.after_clipped_step = clipped});
    if (!plan.memory.fits) return "";
    return beside(plan.step.split, mean, plan.error, network_between(run));
  } catch (const std::exception& error) {  // a failed plan must not stop the run
    if (run.machine.is_cpu()) return "";   // few CPUs are calibrated
    return fmt::format("Plan vs. measured: planning failed: {}", error.what());
  }
}

}  // namespace mpzero::plan
