#pragma once

#include <vector>

namespace mpzero::plan {

// A time estimated from measured ones.
struct Estimate {
  double seconds = 0;
  bool extrapolated = false;  // no measured size is near
};

// Times of one kind of operation at measured sizes, and estimates for sizes between them.
//
// A trend is fitted first: seconds = sum of w_i c_i, with the operation's work w_i (FLOPs, bytes, one launch) and
// coefficients c_i >= 0 that minimize the squared relative errors. An estimate is the trend times a correction: the
// mean log deviation of the nearest samples from the trend, weighted by 1 / distance^2. A measured size returns its
// measured time; far from all samples, the trend determines the dependence on size.
class TimeTable {
 public:
  struct Sample {
    std::vector<double> work;   // the w_i; all samples of a table have the same number
    std::vector<double> place;  // coordinates: log2 of sizes; classes as distances
    double seconds = 0;         // > 0
  };

  TimeTable() = default;
  explicit TimeTable(std::vector<Sample> samples);

  bool empty() const { return samples_.empty(); }
  // The table must not be empty. `extrapolated`: no sample lies within kFar.
  Estimate at(const std::vector<double>& work, const std::vector<double>& place) const;
  // The estimate without correction.
  double trend(const std::vector<double>& work) const;
  const std::vector<double>& coefficients() const { return coefficients_; }

  // A factor of 4 in one size, or of 2 in each of four.
  static constexpr double kFar = 2;

 private:
  std::vector<Sample> samples_;
  std::vector<double> deviations_;  // log(measured / trend) of each sample
  std::vector<double> coefficients_;
};

}  // namespace mpzero::plan
