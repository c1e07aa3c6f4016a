#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// A histogram of durations.
class DurationHistogram {
 public:
  // Upper bounds of the buckets in seconds, for models of all sizes.
  static constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6,
                                       1,     1.5,    2.5,   4,    6,     10,   15,  25,   40,   60,  120};

  void add(double seconds);
  // Returns the number of durations of at most kBounds[i].
  uint64_t count_up_to(size_t i) const;
  uint64_t count() const { return count_up_to(std::size(kBounds)); }
  double sum() const { return sum_; }

 private:
  uint64_t counts_[std::size(kBounds) + 1] = {};
  double sum_ = 0;
};

// Collects metrics and writes the Prometheus text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats). A metric may be added several times with different
// labels.
class Families {
 public:
  // `common`: labels added to all metrics.
  explicit Families(MetricLabels common) : common_(std::move(common)) {}

  void gauge(const std::string& name, const std::string& help, double value, const MetricLabels& labels = {});
  // `name` must end in "_total".
  void counter(const std::string& name, const std::string& help, double value, const MetricLabels& labels = {});
  void histogram(const std::string& name, const std::string& help, const DurationHistogram& durations,
                 const MetricLabels& labels = {});

  std::string text() const;

  struct Sample {
    std::string name;
    MetricLabels labels;  // without the common labels
    double value = 0;
  };
  // Returns all samples in insertion order.
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  struct Family {
    std::string name;
    std::string head;  // the # HELP and # TYPE lines
    std::string samples;
  };

  Family& family(const std::string& name, const std::string& help, const char* type);
  void add(Family& family, const std::string& name, double value, const MetricLabels& labels);

  MetricLabels common_;
  std::vector<Family> families_;
  std::vector<Sample> samples_;
};

}  // namespace mpzero
