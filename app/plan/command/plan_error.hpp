#pragma once

#include <algorithm>

#include "app/log/step_timer.hpp"

namespace mpzero::plan {

// Expected relative errors of a plan's times.
constexpr double kErrorOfEstimate = 0.5;   // a rate from data sheets or other hardware
constexpr double kErrorOfPublished = 0.2;  // a rate from published measurements
// A size far from all measured sizes. Matrix products estimated from other shapes were all within this error
// (docs/formats.md).
constexpr double kErrorOfDistant = 0.2;

// Relative errors by the part that determines the time.
struct PartErrors {
  double kernels = 0;         // the calibration's
  double host_bound = 0;      // in addition, for the time outside of communication and the optimizer
  double communication = 0;   // 0: no more than the calibration's
  double host_optimizer = 0;  // likewise, if the host updates
};

// Error of the kernels' times: `measured` is the calibration's error, `distant_share` the share of time at distant
// sizes.
inline double error_of_kernels(double measured, double distant_share) {
  return measured + distant_share * std::max(0.0, kErrorOfDistant - measured);
}

// Error of a step: the parts' errors weighted by their exposed times. No part has less than the calibration's error.
inline double error_of_step(const StepSplit& split, const PartErrors& errors) {
  const double total = split.total();
  if (!(total > 0)) return errors.kernels + errors.host_bound;
  const double communication = split.exposed_communication() / total, optimizer = split.optimizer / total;
  const double computing = std::max(0.0, 1 - communication - optimizer);
  return errors.kernels + computing * errors.host_bound +
         communication * std::max(0.0, errors.communication - errors.kernels) +
         optimizer * std::max(0.0, errors.host_optimizer - errors.kernels);
}

}  // namespace mpzero::plan
