#pragma once

#include <vector>

namespace mpzero::plan {

// A time estimated from measurements.
struct Estimate {
  double seconds = 0;
  bool extrapolated = false;  // true if no measured size is near
};

// Measured times of one kind of operation, interpolated to other sizes.
//
// Fits a trend, seconds = sum_i c_i w_i, where w_i is the work of the operation (FLOPs, bytes, launches) and the
// coefficients c_i >= 0 minimize the squared relative errors. An estimate is the trend times exp(d), where d is the
// mean log deviation of the nearest samples from the trend, weighted by 1 / distance^2. The estimate at a measured size
// is the measured time.
class TimeTable {
 public:
  struct Sample {
    std::vector<double> work;   // w_i, with the same number of terms in all samples
    std::vector<double> place;  // coordinates: log2 of sizes, and numbers for categories
    double seconds = 0;         // > 0
  };

  TimeTable() = default;
  explicit TimeTable(std::vector<Sample> samples);

  bool empty() const { return samples_.empty(); }
  // Returns the estimate, extrapolated if no sample is within kFar. The table must not be empty.
  Estimate at(const std::vector<double>& work, const std::vector<double>& place) const;
  // Returns the estimate without the correction from nearby samples.
  double trend(const std::vector<double>& work) const;
  const std::vector<double>& coefficients() const { return coefficients_; }

  // Distance beyond which estimates count as extrapolated: a factor of 4 in one size, or a factor of 2 in each of four
  // sizes.
  static constexpr double kFar = 2;

 private:
  std::vector<Sample> samples_;
  std::vector<double> deviations_;  // log(measured / trend) of each sample
  std::vector<double> coefficients_;
};

}  // namespace mpzero::plan
