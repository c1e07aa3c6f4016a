#include "app/top/node_metrics.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>

namespace mpzero {
namespace {

bool is_of(const std::string& sample, std::string_view metric) {
  return sample.starts_with(metric) && sample.size() > metric.size() && sample[metric.size()] == '{';
}

// The value of a label; empty: it has none.
std::string label(const std::string& sample, const std::string& name) {
  for (const char before : {'{', ','}) {
    const std::string begin = before + name + "=\"";
    const size_t at = sample.find(begin);
    if (at == std::string::npos) continue;
    const size_t from = at + begin.size();
    return sample.substr(from, sample.find('"', from) - from);
  }
  return "";
}

// The sum of all samples of a metric that `counts` accepts.
std::optional<double> sum_of(const MetricSamples& samples, std::string_view metric,
                             const std::function<bool(const std::string&)>& counts) {
  std::optional<double> sum;
  for (const auto& [sample, value] : samples) {
    if (is_of(sample, metric) && counts(sample)) sum = sum.value_or(0) + value;
  }
  return sum;
}

std::optional<double> rate(const MetricSamples& before, const MetricSamples& now, double seconds,
                           std::string_view metric, const std::function<bool(const std::string&)>& counts) {
  const auto from = sum_of(before, metric, counts);
  const auto to = sum_of(now, metric, counts);
  if (seconds <= 0 || !from || !to || *to < *from) return std::nullopt;
  return (*to - *from) / seconds;
}

bool all(const std::string&) { return true; }
bool is_no_loopback(const std::string& sample) { return label(sample, "device") != "lo"; }

std::vector<GpuView> gpus_of(const MetricSamples& samples) {
  std::map<int, GpuView> gpus;
  for (const auto& [sample, value] : samples) {
    const std::string index = label(sample, "gpu");
    int number = 0;
    const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), number);
    if (index.empty() || error != std::errc() || end != index.data() + index.size()) continue;
    GpuView& gpu = gpus[number];
    gpu.index = number;
    if (is_of(sample, "mpzero_gpu_utilization_ratio")) gpu.utilization = value;
    if (is_of(sample, "mpzero_gpu_sm_clock_hertz")) gpu.clock_hertz = value;
    if (is_of(sample, "mpzero_gpu_power_watts")) gpu.watts = value;
    if (is_of(sample, "mpzero_gpu_temperature_celsius")) gpu.celsius = value;
    if (is_of(sample, "mpzero_gpu_memory_used_bytes")) gpu.memory_used = value;
    if (is_of(sample, "mpzero_gpu_memory_bytes")) gpu.memory_total = value;
    const std::string reason = label(sample, "reason");
    const bool fault = reason.find("slowdown") != std::string::npos;
    if (is_of(sample, "mpzero_gpu_throttled") && fault && value > 0) gpu.throttled = true;
  }
  std::vector<GpuView> list;
  for (const auto& [index, gpu] : gpus) list.push_back(gpu);
  return list;
}

}  // namespace

MetricSamples parse_samples(const std::string& text) {
  MetricSamples samples;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    const size_t space = line.rfind(' ');
    if (line.empty() || line.front() == '#' || space == std::string_view::npos) continue;
    double value = 0;
    const auto [rest, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    if (error == std::errc() && rest == line.data() + line.size()) samples[std::string(line.substr(0, space))] = value;
  }
  return samples;
}

std::string run_of(const MetricSamples& samples) {
  for (const auto& [sample, value] : samples) {
    if (is_of(sample, "mpzero_up")) return label(sample, "run_id");
  }
  return "";
}

NodeView view_of(const std::string& host, const MetricSamples& before, const MetricSamples& now, double seconds) {
  NodeView node;
  node.host = host;
  const auto busy = rate(before, now, seconds, "mpzero_host_cpu_seconds_total",
                         [](const auto& sample) { return label(sample, "mode") != "idle"; });
  const auto total = rate(before, now, seconds, "mpzero_host_cpu_seconds_total", all);
  if (busy && total && *total > 0) node.cpu = *busy / *total;
  node.memory_available = sum_of(now, "mpzero_host_memory_available_bytes", all);
  node.sent = rate(before, now, seconds, "mpzero_rdma_tx_bytes_total", all);
  node.received = rate(before, now, seconds, "mpzero_rdma_rx_bytes_total", all);
  if (!node.sent) node.sent = rate(before, now, seconds, "mpzero_network_transmit_bytes_total", is_no_loopback);
  if (!node.received) node.received = rate(before, now, seconds, "mpzero_network_receive_bytes_total", is_no_loopback);
  node.gpus = gpus_of(now);
  return node;
}

}  // namespace mpzero
