#include "app/exporter/gpu_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

using doctor::GpuReading;

struct Value {
  const char* name;
  const char* help;
  std::optional<double> GpuReading::*member;
};

constexpr Value kGauges[] = {
    {"mpzero_gpu_utilization_ratio", "Share of the time with a kernel at work.", &GpuReading::utilization},
    {"mpzero_gpu_memory_utilization_ratio", "Share of the time with memory being read or written.",
     &GpuReading::memory_utilization},
    {"mpzero_gpu_sm_clock_hertz", "Clock of the multiprocessors.", &GpuReading::sm_clock},
    {"mpzero_gpu_memory_clock_hertz", "Clock of the memory.", &GpuReading::memory_clock},
    {"mpzero_gpu_power_watts", "Power that the GPU draws.", &GpuReading::power},
    {"mpzero_gpu_temperature_celsius", "Temperature of the GPU.", &GpuReading::temperature},
    {"mpzero_gpu_memory_used_bytes", "Memory that all processes hold.", &GpuReading::memory_used},
    {"mpzero_gpu_memory_bytes", "Memory of the GPU.", &GpuReading::memory_total}};

constexpr Value kCounters[] = {
    {"mpzero_gpu_energy_joules_total", "Energy since the driver was loaded.", &GpuReading::energy}};

// Those that a GpuReader reads once in kSlowPeriod.
constexpr Value kErrorGauges[] = {{"mpzero_gpu_last_xid", "Number of the newest Xid error.", &GpuReading::last_xid}};
constexpr Value kErrorCounters[] = {
    {"mpzero_gpu_nvlink_errors_total", "Replays, recoveries and CRC errors of all NVLinks.",
     &GpuReading::nvlink_errors},
    {"mpzero_gpu_pcie_replays_total", "Packets that PCIe has sent again.", &GpuReading::pcie_replays},
    {"mpzero_gpu_xid_errors_total", "Xid errors since this start of the run.", &GpuReading::xid_errors}};

std::string with_age(const char* help) {
  return fmt::format("{} Read once in {} s.", help, doctor::GpuReader::kSlowPeriod.count());
}

// "SW Power Cap" as the value of a label: "sw_power_cap".
std::string label_of(const char* name) {
  std::string label(name);
  std::transform(label.begin(), label.end(), label.begin(),
                 [](unsigned char c) { return c == ' ' ? '_' : static_cast<char>(std::tolower(c)); });
  return label;
}

}  // namespace

void collect_gpus(const std::optional<std::vector<GpuReading>>& gpus, const std::map<std::string, int>& ranks,
                  Families& to) {
  to.gauge("mpzero_gpu_driver_up", "1 while the driver of the GPUs answers, 0 while it hangs.", gpus ? 1 : 0);
  if (!gpus) return;
  for (const GpuReading& gpu : *gpus) {
    MetricLabels labels = {{"gpu", std::to_string(gpu.index)}, {"uuid", gpu.uuid}};
    for (const auto& [address, rank] : ranks) {
      if (parallel::same_gpu(address, gpu.pci_address)) labels.emplace_back("rank", std::to_string(rank));
    }
    const auto with = [&](const char* key, const std::string& value) {
      MetricLabels more = labels;
      more.emplace_back(key, value);
      return more;
    };
    for (const Value& value : kGauges) {
      if (gpu.*value.member) to.gauge(value.name, value.help, *(gpu.*value.member), labels);
    }
    for (const Value& value : kCounters) {
      if (gpu.*value.member) to.counter(value.name, value.help, *(gpu.*value.member), labels);
    }
    for (const Value& value : kErrorGauges) {
      if (gpu.*value.member) to.gauge(value.name, with_age(value.help), *(gpu.*value.member), labels);
    }
    for (const Value& value : kErrorCounters) {
      if (gpu.*value.member) to.counter(value.name, with_age(value.help), *(gpu.*value.member), labels);
    }
    const std::string ecc_help = with_age("Errors of memory since the driver was loaded.");
    if (gpu.corrected_errors) {
      to.counter("mpzero_gpu_ecc_errors_total", ecc_help, *gpu.corrected_errors, with("type", "corrected"));
    }
    if (gpu.uncorrected_errors) {
      to.counter("mpzero_gpu_ecc_errors_total", ecc_help, *gpu.uncorrected_errors, with("type", "uncorrected"));
    }
    if (!gpu.throttle_reasons) continue;
    for (const doctor::ThrottleReason& reason : doctor::kThrottleReasons) {
      to.gauge("mpzero_gpu_throttled", "1 while the GPU runs slower for this reason.",
               (*gpu.throttle_reasons & reason.bit) != 0 ? 1 : 0, with("reason", label_of(reason.name)));
    }
  }
}

}  // namespace mpzero
