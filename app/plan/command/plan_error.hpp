#pragma once

#include "app/log/step_timer.hpp"

namespace mpzero::plan {

// Relative errors to expect of a plan's times.
constexpr double kErrorOfEstimate = 0.5;   // a rate by data sheets or by other hardware
constexpr double kErrorOfPublished = 0.2;  // a rate by published measurements
// A size far from all measured sizes. Matrix products estimated from other shapes were all within this error
// (docs/formats.md).
constexpr double kErrorOfDistant = 0.2;

// Relative, by what decides the time.
struct PartErrors {
  double kernels = 0;         // the calibration's
  double host_bound = 0;      // in addition, of the time outside of communication and the optimizer
  double communication = 0;   // 0: no more than the calibration's
  double host_optimizer = 0;  // likewise, where the host updates
};

// Of the kernels' times, where the calibration's error is `measured` and a share of the time is of distant sizes.
double error_of_kernels(double measured, double distant_share);

// Of a step: each part's own error, by its share. Only exposed time counts, and no part has less than the
// calibration's.
double error_of_step(const StepSplit& split, const PartErrors& errors);

}  // namespace mpzero::plan
