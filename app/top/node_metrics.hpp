#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// What a node's Prometheus endpoint says at one time: values by metric and labels, e.g.
// "mpzero_gpu_power_watts{gpu=\"0\"}".
using MetricSamples = std::map<std::string, double>;

// Samples of Prometheus' text format. Lines that are none are left out.
MetricSamples parse_samples(const std::string& text);

// The run that answers; empty: none does.
std::string run_of(const MetricSamples& samples);

struct GpuView {
  int index = 0;
  std::optional<double> utilization, clock_hertz, watts, celsius, memory_used, memory_total;
  bool throttled = false;
};

// A node between two scrapes.
struct NodeView {
  std::string host;
  std::string problem;        // why there is nothing to show; empty: there is
  std::optional<double> cpu;  // share of all cores
  std::optional<double> memory_available;
  std::optional<double> sent, received;  // bytes a second, of all EFA devices, else of all network interfaces
  std::vector<GpuView> gpus;
};

// `seconds`: from `before` to `now`; 0: there is no scrape before.
NodeView view_of(const std::string& host, const MetricSamples& before, const MetricSamples& now, double seconds);

}  // namespace mpzero
