#include "app/exporter/node_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "app/exporter/node_metrics.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kOfRun = "mpzero_";
constexpr std::string_view kOfGpu = "gpu_";
constexpr std::string_view kGpuValues[] = {"utilization_ratio", "sm_clock_hertz", "power_watts", "temperature_celsius",
                                           "memory_used_bytes"};

std::string label(const Families::Sample& sample, std::string_view name) {
  const auto found =
      std::find_if(sample.labels.begin(), sample.labels.end(), [&](const auto& one) { return one.first == name; });
  return found == sample.labels.end() ? "" : found->second;
}

// Returns the name of a metric without "mpzero_".
std::string_view short_name(const Families::Sample& sample) {
  const std::string_view name = sample.name;
  return name.starts_with(kOfRun) ? name.substr(kOfRun.size()) : name;
}

// Returns the sum over all devices except loopback; std::nullopt if there are no devices.
std::optional<double> sum_of(const Families& metrics, std::string_view name) {
  std::optional<double> sum;
  for (const Families::Sample& sample : metrics.samples()) {
    if (short_name(sample) == name && label(sample, "device") != "lo") sum = sum.value_or(0) + sample.value;
  }
  return sum;
}

}  // namespace

ordered_json node_facts(const Families& metrics) {
  ordered_json facts = ordered_json::object();
  std::optional<double> sent = sum_of(metrics, "rdma_tx_bytes_total");
  std::optional<double> received = sum_of(metrics, "rdma_rx_bytes_total");
  if (!sent || !received) {
    sent = sum_of(metrics, "network_transmit_bytes_total");
    received = sum_of(metrics, "network_receive_bytes_total");
  }
  if (sent) facts["sent_bytes"] = *sent;
  if (received) facts["received_bytes"] = *received;
  std::map<std::string, ordered_json> gpus;
  for (const Families::Sample& sample : metrics.samples()) {
    std::string_view name = short_name(sample);
    if (!name.starts_with(kOfGpu)) continue;
    name.remove_prefix(kOfGpu.size());
    const std::string gpu = label(sample, "gpu");
    if (gpu.empty() || std::find(std::begin(kGpuValues), std::end(kGpuValues), name) == std::end(kGpuValues)) continue;
    gpus[gpu][std::string(name)] = sample.value;
  }
  if (!gpus.empty()) facts["gpus"] = gpus;
  return facts;
}

NodeRecorder::NodeRecorder(const std::filesystem::path& path, ordered_json common, std::vector<Collector> collectors,
                           std::function<void(const std::string&)> warn, std::chrono::milliseconds interval)
    : log_(path, warn),
      common_(std::move(common)),
      collectors_(std::move(collectors)),
      warn_(std::move(warn)),
      interval_(interval),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void NodeRecorder::run(const std::stop_token& stop) {
  try {
    std::mutex mutex;
    std::condition_variable_any wake;
    do {
      record();
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, interval_, [] { return false; });
    } while (!stop.stop_requested());
    record();
  } catch (const std::exception& error) {
    warn_(fmt::format("stopped recording GPU and network metrics for the report: {}", error.what()));
  }
}

void NodeRecorder::record() {
  Families metrics(MetricLabels{});
  for (const Collector& collect : collectors_) collect(metrics);
  collect_host("/", metrics);
  ordered_json line = common_;
  line.update(node_facts(metrics));
  log_.write("node", line);
}

}  // namespace mpzero
