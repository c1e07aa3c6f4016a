#pragma once

#include <algorithm>

#include "app/log/step_timer.hpp"

namespace mpzero::plan {

// Expected relative errors of a plan's times.
constexpr double kErrorOfEstimate = 0.5;   // rates from data sheets or different hardware
constexpr double kErrorOfPublished = 0.2;  // rates from published measurements
// Error at sizes far from any measured size. All matmuls estimated from other shapes were within this error
// (docs/formats.md).
constexpr double kErrorOfDistant = 0.2;

// Relative errors of the parts of a step.
struct PartErrors {
  double kernels = 0;         // error of the calibration
  double host_bound = 0;      // added to `kernels` outside of communication and the optimizer
  double communication = 0;   // 0: same as `kernels`
  double host_optimizer = 0;  // AdamW on the host; 0: same as `kernels`
};

// Returns the error of the kernels' times. `measured`: error of the calibration. `distant_share`: share of the time at
// sizes far from any measured size.
inline double error_of_kernels(double measured, double distant_share) {
  return measured + distant_share * std::max(0.0, kErrorOfDistant - measured);
}

// Returns the error of a step: the errors of the parts, weighted by exposed time. The error of each part is at least
// the calibration's error.
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
