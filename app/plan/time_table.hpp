#pragma once

#include <vector>

namespace mpzero::plan {

// A time that was not measured but follows from others.
struct Estimate {
  double seconds = 0;
  bool extrapolated = false;  // nothing near was measured
};

// Times of one kind of operation at measured sizes, and estimates for sizes between them.
//
// A trend is fitted first: seconds = the sum of w_i c_i, where the w_i are what the operation does (floating-point
// operations, bytes, one launch) and the c_i >= 0 minimize the squares of the relative errors. An estimate is the trend
// at its size times a correction: the weighted mean of the measured deviations from the trend, in logs, of the nearest
// samples. Their weights are 1 / distance^2. So a measured size returns its time; near ones decide how far an estimate
// departs from the trend; and far from all, the trend carries the dependence on size.
class TimeTable {
 public:
  struct Sample {
    std::vector<double> work;   // the w_i: as many for all samples of a table
    std::vector<double> place;  // coordinates: logs to base 2 of sizes, classes as distances
    double seconds = 0;         // > 0
  };

  TimeTable() = default;
  explicit TimeTable(std::vector<Sample> samples);

  bool empty() const { return samples_.empty(); }
  // The table must not be empty. `extrapolated`: no sample lies within kFar.
  Estimate at(const std::vector<double>& work, const std::vector<double>& place) const;
  // Without corrections.
  double trend(const std::vector<double>& work) const;
  const std::vector<double>& coefficients() const { return coefficients_; }

  // A factor of four in one size, or of two in each of four.
  static constexpr double kFar = 2;

 private:
  std::vector<Sample> samples_;
  std::vector<double> deviations_;  // of each sample from the trend: a log
  std::vector<double> coefficients_;
};

}  // namespace mpzero::plan
