#include "app/train/gpu_collector.hpp"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "app/exporter/guarded_call.hpp"
#include "app/exporter/node_metrics.hpp"
#include "app/gpu/gpu_readings.hpp"
#include "app/machine/system.hpp"
#include "base/collectives.hpp"
#include "base/host_name.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero {
namespace {

constexpr std::chrono::seconds kDriverPatience{2};

}  // namespace

std::map<std::string, int> gpus_of_host(at::Device device, ProcessGroup& group) {
  const std::pair<std::string, std::string> mine = {host_name(), parallel::gpu_address(device.index())};
  std::map<std::string, int> ranks;
  int rank = 0;
  for (const auto& [host, address] : all_gather(group, mine)) {
    if (host == mine.first) ranks[address] = rank;
    ++rank;
  }
  return ranks;
}

Collector gpu_collector(std::map<std::string, int> ranks) {
  std::vector<std::string> addresses;
  for (const auto& [address, rank] : ranks) addresses.push_back(address);
  // Open the NVML session in the first scrape, since opening takes time.
  auto reader = std::make_shared<std::unique_ptr<doctor::GpuReader>>();
  // The driver may hang if a GPU has failed.
  const auto readings = std::make_shared<GuardedCall<std::vector<doctor::GpuReading>>>([reader, addresses] {
    if (!*reader) *reader = std::make_unique<doctor::GpuReader>(doctor::System{}.nvml, addresses);
    return (*reader)->read();
  });
  return [readings, ranks = std::move(ranks)](Families& families) {
    collect_gpus(readings->value(kDriverPatience), ranks, families);
  };
}

}  // namespace mpzero
