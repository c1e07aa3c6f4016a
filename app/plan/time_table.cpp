#include "app/plan/time_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace mpzero::plan {
namespace {

using Sample = TimeTable::Sample;

constexpr size_t kNearest = 8;
// Smaller distances count as zero.
constexpr double kSame = 1e-9;

// Solves a x = b for a symmetric matrix a. Returns std::nullopt if a is singular.
std::optional<std::vector<double>> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t row = i + 1; row < n; ++row) {
      if (std::abs(a[row][i]) > std::abs(a[pivot][i])) pivot = row;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    if (!(std::abs(a[i][i]) > 1e-12)) return std::nullopt;
    for (size_t row = i + 1; row < n; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (size_t column = i; column < n; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t column = i + 1; column < n; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
  return b;
}

// Fits the coefficients of the terms whose bits are set in `terms`, by least squares of relative errors.
std::optional<std::vector<double>> fit(const std::vector<Sample>& samples, const std::vector<double>& scales,
                                       unsigned terms) {
  std::vector<size_t> used;
  for (size_t i = 0; i < scales.size(); ++i) {
    if ((terms >> i & 1U) != 0) used.push_back(i);
  }
  std::vector<std::vector<double>> a(used.size(), std::vector<double>(used.size()));
  std::vector<double> b(used.size());
  for (const Sample& sample : samples) {
    const auto term = [&](size_t i) { return sample.work[used[i]] / scales[used[i]] / sample.seconds; };
    for (size_t i = 0; i < used.size(); ++i) {
      b[i] += term(i);
      for (size_t j = 0; j < used.size(); ++j) a[i][j] += term(i) * term(j);
    }
  }
  const auto found = solve(std::move(a), std::move(b));
  if (!found || std::any_of(found->begin(), found->end(), [](double x) { return !(x >= 0); })) return std::nullopt;
  std::vector<double> all(scales.size());
  for (size_t i = 0; i < used.size(); ++i) all[used[i]] = (*found)[i] / scales[used[i]];
  return all;
}

double sum_of(const std::vector<double>& work, const std::vector<double>& coefficients) {
  double sum = 0;
  for (size_t i = 0; i < work.size(); ++i) sum += work[i] * coefficients[i];
  return sum;
}

// Non-negative least squares, which tries every subset of nonzero coefficients because the number of terms is small.
std::vector<double> best_fit(const std::vector<Sample>& samples) {
  const size_t terms = samples.front().work.size();
  // Scale each term by its share of a typical sample's time, so that the equations are well conditioned.
  std::vector<double> scales(terms, 1.0);
  for (size_t i = 0; i < terms; ++i) {
    double sum = 0;
    for (const Sample& sample : samples) sum += sample.work[i] / sample.seconds;
    if (sum > 0) scales[i] = sum / static_cast<double>(samples.size());
  }
  std::vector<double> best;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned choice = 1; choice < 1U << terms; ++choice) {
    const auto found = fit(samples, scales, choice);
    if (!found) continue;
    double squares = 0;
    bool positive = true;
    for (const Sample& sample : samples) {
      const double trend = sum_of(sample.work, *found);
      positive = positive && trend > 0;
      squares += (trend / sample.seconds - 1) * (trend / sample.seconds - 1);
    }
    // Ties prefer earlier terms, which matter most. With few samples, several subsets fit equally well.
    if (positive && squares < 0.999 * least - 1e-12) {
      least = squares;
      best = *found;
    }
  }
  return best;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

}  // namespace

TimeTable::TimeTable(std::vector<Sample> samples) : samples_(std::move(samples)) {
  if (samples_.empty()) return;
  coefficients_ = best_fit(samples_);
  for (const Sample& sample : samples_) deviations_.push_back(std::log(sample.seconds / trend(sample.work)));
}

double TimeTable::trend(const std::vector<double>& work) const { return sum_of(work, coefficients_); }

Estimate TimeTable::at(const std::vector<double>& work, const std::vector<double>& place) const {
  std::vector<std::pair<double, double>> near;  // distance, deviation
  for (size_t i = 0; i < samples_.size(); ++i) {
    near.emplace_back(distance(samples_[i].place, place), deviations_[i]);
  }
  const size_t count = std::min(kNearest, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  double weights = 0, deviation = 0;
  if (near.front().first < kSame) {  // the mean of the samples at this size
    for (const auto& [away, own] : near) {
      if (away >= kSame) continue;
      weights += 1;
      deviation += own;
    }
  } else {
    for (size_t i = 0; i < count; ++i) {
      const double weight = 1 / (near[i].first * near[i].first);
      weights += weight;
      deviation += weight * near[i].second;
    }
  }
  return {.seconds = trend(work) * std::exp(deviation / weights), .extrapolated = near.front().first > kFar};
}

}  // namespace mpzero::plan
