#include "app/plan/command/plan_error.hpp"

#include <algorithm>

namespace mpzero::plan {

double error_of_kernels(double measured, double distant_share) {
  return measured + distant_share * std::max(0.0, kErrorOfDistant - measured);
}

double error_of_step(const StepSplit& split, const PartErrors& errors) {
  const double total = split.total();
  if (!(total > 0)) return errors.kernels + errors.host_bound;
  const double communication = split.exposed_communication() / total, optimizer = split.optimizer / total;
  const double computing = std::max(0.0, 1 - communication - optimizer);
  return errors.kernels + computing * errors.host_bound +
         communication * std::max(0.0, errors.communication - errors.kernels) +
         optimizer * std::max(0.0, errors.host_optimizer - errors.kernels);
}

}  // namespace mpzero::plan
