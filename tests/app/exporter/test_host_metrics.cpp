#include <filesystem>
#include <fstream>
#include <string>

#include "app/exporter/host_metrics.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using io::testing::TemporaryFolder;

namespace {

// A host with the files of a kernel.
class Host {
 public:
  void put(const std::string& file, const std::string& text) {
    const auto path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string text() const {
    Families families(MetricLabels{});
    collect_host(root_.path(), families);
    return families.text();
  }
  bool has(const std::string& line) const { return text().find(line + "\n") != std::string::npos; }

 private:
  TemporaryFolder root_;
};

}  // namespace

TEST_CASE("EFA's counters are exported under their own names") {
  Host host;
  const std::string port = "sys/class/infiniband/rdmap0s6/ports/1/hw_counters/";
  host.put(port + "rx_drops", "7\n");
  host.put(port + "tx_bytes", "123456789012\n");
  host.put(port + "lifespan", "12\n");
  host.put(port + "Not-A-Counter", "1\n");
  host.put(port + "broken", "none\n");
  CHECK(host.has("mpzero_rdma_rx_drops_total{device=\"rdmap0s6\",port=\"1\"} 7"));
  CHECK(host.has("mpzero_rdma_tx_bytes_total{device=\"rdmap0s6\",port=\"1\"} 123456789012"));
  for (const char* absent : {"lifespan", "Counter", "broken"}) CHECK(host.text().find(absent) == std::string::npos);
}

TEST_CASE("CPU, memory and interfaces have their values in base units") {
  Host host;
  host.put("proc/stat", "cpu  200 0 100 5000 10 0 0 0 0 0\ncpu0 1 2\n");
  host.put("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    10 kB\nHugePages_Total:       0\n");
  host.put("sys/class/net/eth0/statistics/rx_bytes", "11\n");
  host.put("sys/class/net/eth0/statistics/tx_dropped", "2\n");
  CHECK(host.has("mpzero_host_cpu_seconds_total{mode=\"user\"} 2"));
  CHECK(host.has("mpzero_host_cpu_seconds_total{mode=\"idle\"} 50"));
  CHECK(host.has("mpzero_host_memory_bytes 1024000"));
  CHECK(host.has("mpzero_host_memory_available_bytes 10240"));
  CHECK(host.has("mpzero_network_receive_bytes_total{device=\"eth0\"} 11"));
  CHECK(host.has("mpzero_network_transmit_drops_total{device=\"eth0\"} 2"));
}

TEST_CASE("what a host does not have is left out") {
  const Host host;
  CHECK(host.text().empty());
}
