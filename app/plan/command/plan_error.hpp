#pragma once

#include "app/log/step_timer.hpp"

namespace mpzero::plan {

// Relative errors to expect of a plan's times.
constexpr double kErrorOfEstimate = 0.5;   // a rate by data sheets or by other hardware
constexpr double kErrorOfPublished = 0.2;  // a rate by published measurements

// Relative, by what decides the time.
struct PartErrors {
  double kernels = 0;         // the calibration's
  double communication = 0;   // 0: no more than the calibration's
  double host_optimizer = 0;  // likewise, where the host updates
};

// Of a step: each part's own error, by its share. Only exposed time counts, and no part has less than the
// calibration's.
double error_of_step(const StepSplit& split, const PartErrors& errors);

}  // namespace mpzero::plan
