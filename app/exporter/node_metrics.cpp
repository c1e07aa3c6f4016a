#include "app/exporter/node_metrics.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;

constexpr double kKibibyte = 1024;

std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// Returns the readable entries of a folder, sorted.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void collect_cpu(const fs::path& root, Families& to) {
  std::ifstream file(root / "proc/stat");
  std::string name;
  if (!(file >> name) || name != "cpu") return;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (const char* mode : {"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"}) {
    double value = 0;
    if (!(file >> value)) return;
    to.counter("mpzero_host_cpu_seconds_total", "CPU time summed over all cores.", value / ticks, {{"mode", mode}});
  }
}

void collect_memory(const fs::path& root, Families& to) {
  static const std::map<std::string, std::pair<const char*, const char*>> kShown = {
      {"MemTotal:", {"mpzero_host_memory_bytes", "Total memory of the host."}},
      {"MemAvailable:", {"mpzero_host_memory_available_bytes", "Available memory."}},
      {"Shmem:", {"mpzero_host_memory_shared_bytes", "Shared memory, including /dev/shm."}}};
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    double kibibytes = 0;
    if (!(words >> key >> kibibytes)) continue;
    if (const auto found = kShown.find(key); found != kShown.end()) {
      to.gauge(found->second.first, found->second.second, kibibytes * kKibibyte);
    }
  }
}

void collect_interfaces(const fs::path& root, Families& to) {
  static constexpr std::array<std::array<const char*, 3>, 4> kShown = {
      {{"rx_bytes", "mpzero_network_receive_bytes_total", "Received bytes."},
       {"tx_bytes", "mpzero_network_transmit_bytes_total", "Sent bytes."},
       {"rx_dropped", "mpzero_network_receive_drops_total", "Received packets that were dropped."},
       {"tx_dropped", "mpzero_network_transmit_drops_total", "Outgoing packets that were dropped."}}};
  for (const fs::path& interface : entries_of(root / "sys/class/net")) {
    for (const auto& [file, name, help] : kShown) {
      const auto value = number_in(interface / "statistics" / file);
      if (value) to.counter(name, help, *value, {{"device", interface.filename().string()}});
    }
  }
}

// Returns the metric name of a counter: "rx_drops" becomes mpzero_rdma_rx_drops_total.
std::optional<std::string> metric_of(const std::string& counter) {
  const auto plain = [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '_'; };
  if (counter.empty() || !std::all_of(counter.begin(), counter.end(), plain)) return std::nullopt;
  return "mpzero_rdma_" + counter + "_total";
}

void collect_rdma(const fs::path& root, Families& to) {
  for (const fs::path& device : entries_of(root / "sys/class/infiniband")) {
    for (const fs::path& port : entries_of(device / "ports")) {
      for (const fs::path& counter : entries_of(port / "hw_counters")) {
        const std::string file = counter.filename().string();
        // "lifespan" is the driver's refresh interval, not a counter.
        if (file == "lifespan") continue;
        const auto name = metric_of(file);
        const auto value = number_in(counter);
        if (!name || !value) continue;
        to.counter(*name, "Hardware counter " + file + ".", *value,
                   {{"device", device.filename().string()}, {"port", port.filename().string()}});
      }
    }
  }
}

using doctor::GpuReading;

// A counter if the name ends in "_total", else a gauge. GpuReader reads `slow` values once per kSlowPeriod.
struct Value {
  const char* name;
  const char* help;
  std::optional<double> GpuReading::*member;
  bool slow = false;
};

constexpr Value kValuesOfGpu[] = {
    {"mpzero_gpu_utilization_ratio", "Fraction of time during which a kernel was running.", &GpuReading::utilization},
    {"mpzero_gpu_memory_utilization_ratio", "Fraction of time during which GPU memory was being read or written.",
     &GpuReading::memory_utilization},
    {"mpzero_gpu_sm_clock_hertz", "SM clock.", &GpuReading::sm_clock},
    {"mpzero_gpu_memory_clock_hertz", "Memory clock.", &GpuReading::memory_clock},
    {"mpzero_gpu_power_watts", "Power draw of the GPU.", &GpuReading::power},
    {"mpzero_gpu_temperature_celsius", "Temperature of the GPU.", &GpuReading::temperature},
    {"mpzero_gpu_memory_used_bytes", "Memory in use by all processes.", &GpuReading::memory_used},
    {"mpzero_gpu_memory_bytes", "Total memory of the GPU.", &GpuReading::memory_total},
    {"mpzero_gpu_energy_joules_total", "Energy consumed since the driver was loaded.", &GpuReading::energy},
    {"mpzero_gpu_last_xid", "Code of the latest Xid error.", &GpuReading::last_xid, true},
    {"mpzero_gpu_nvlink_errors_total", "Replay, recovery and CRC errors of all NVLinks.", &GpuReading::nvlink_errors,
     true},
    {"mpzero_gpu_pcie_replays_total", "Retransmitted PCIe packets.", &GpuReading::pcie_replays, true},
    {"mpzero_gpu_xid_errors_total", "Xid errors since the run last started.", &GpuReading::xid_errors, true}};

std::string with_age(const char* help) {
  return fmt::format("{} Updated every {} s.", help, doctor::GpuReader::kSlowPeriod.count());
}

// Returns a name as a label value: "SW Power Cap" becomes "sw_power_cap".
std::string label_of(const char* name) {
  std::string label(name);
  std::transform(label.begin(), label.end(), label.begin(),
                 [](unsigned char c) { return c == ' ' ? '_' : static_cast<char>(std::tolower(c)); });
  return label;
}

}  // namespace

void collect_host(const fs::path& root, Families& families) {
  collect_cpu(root, families);
  collect_memory(root, families);
  collect_interfaces(root, families);
  collect_rdma(root, families);
}

void collect_gpus(const std::optional<std::vector<GpuReading>>& gpus, const std::map<std::string, int>& ranks,
                  Families& to) {
  to.gauge("mpzero_gpu_driver_up", "1 if the GPU driver responds, 0 if the driver hangs.", gpus ? 1 : 0);
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
    for (const Value& value : kValuesOfGpu) {
      const std::optional<double> read = gpu.*value.member;
      if (!read) continue;
      const std::string help = value.slow ? with_age(value.help) : value.help;
      if (std::string_view(value.name).ends_with("_total")) {
        to.counter(value.name, help, *read, labels);
      } else {
        to.gauge(value.name, help, *read, labels);
      }
    }
    const std::string ecc_help = with_age("Memory errors since the driver was loaded.");
    if (gpu.corrected_errors) {
      to.counter("mpzero_gpu_ecc_errors_total", ecc_help, *gpu.corrected_errors, with("type", "corrected"));
    }
    if (gpu.uncorrected_errors) {
      to.counter("mpzero_gpu_ecc_errors_total", ecc_help, *gpu.uncorrected_errors, with("type", "uncorrected"));
    }
    if (!gpu.throttle_reasons) continue;
    for (const doctor::ThrottleReason& reason : doctor::kThrottleReasons) {
      to.gauge("mpzero_gpu_throttled", "1 if the GPU is throttled for this reason.",
               (*gpu.throttle_reasons & reason.bit) != 0 ? 1 : 0, with("reason", label_of(reason.name)));
    }
  }
}

void collect_ec2(const Ec2Watch& watch, Families& to) {
  using Kind = Ec2Notice::Kind;
  std::map<Kind, int64_t> counts = watch.counts();
  for (const auto& [kind, name] : {std::pair(Kind::kInterruption, "interruption"),
                                   std::pair(Kind::kRebalance, "rebalance"), std::pair(Kind::kEvent, "event")}) {
    to.counter("mpzero_ec2_notices_total", "EC2 notices about this instance.", static_cast<double>(counts[kind]),
               {{"kind", name}});
  }
  to.gauge("mpzero_ec2_metadata_up", "1 if EC2's metadata service responds.", watch.answers() ? 1 : 0);
}

}  // namespace mpzero
