#include "app/exporter/host_metrics.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

namespace mpzero {
namespace {

namespace fs = std::filesystem;

constexpr double kKibibyte = 1024;

std::optional<double> number_in(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// Those of a folder that can be read, sorted.
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
    to.counter("mpzero_host_cpu_seconds_total", "Time of all cores together.", value / ticks, {{"mode", mode}});
  }
}

void collect_memory(const fs::path& root, Families& to) {
  static const std::map<std::string, std::pair<const char*, const char*>> kShown = {
      {"MemTotal:", {"mpzero_host_memory_bytes", "Memory of the host."}},
      {"MemAvailable:", {"mpzero_host_memory_available_bytes", "Memory that processes can still take."}},
      {"Shmem:", {"mpzero_host_memory_shared_bytes", "Memory that processes share, /dev/shm among it."}}};
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
      {{"rx_bytes", "mpzero_network_receive_bytes_total", "Bytes that the interface has received."},
       {"tx_bytes", "mpzero_network_transmit_bytes_total", "Bytes that the interface has sent."},
       {"rx_dropped", "mpzero_network_receive_drops_total", "Packets that were dropped when received."},
       {"tx_dropped", "mpzero_network_transmit_drops_total", "Packets that were dropped when sent."}}};
  for (const fs::path& interface : entries_of(root / "sys/class/net")) {
    for (const auto& [file, name, help] : kShown) {
      const auto value = number_in(interface / "statistics" / file);
      if (value) to.counter(name, help, *value, {{"device", interface.filename().string()}});
    }
  }
}

// A counter's name as a metric: "rx_drops" gives mpzero_rdma_rx_drops_total.
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
        // How long the driver keeps the numbers, no count.
        if (file == "lifespan") continue;
        const auto name = metric_of(file);
        const auto value = number_in(counter);
        if (!name || !value) continue;
        to.counter(*name, "The hardware's counter " + file + ".", *value,
                   {{"device", device.filename().string()}, {"port", port.filename().string()}});
      }
    }
  }
}

}  // namespace

void collect_host(const fs::path& root, Families& families) {
  collect_cpu(root, families);
  collect_memory(root, families);
  collect_interfaces(root, families);
  collect_rdma(root, families);
}

}  // namespace mpzero
