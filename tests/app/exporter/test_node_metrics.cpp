#include <poll.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "app/exporter/node_metrics.hpp"
#include "tests/app/ec2/stand_in_server.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using Catch::Contains;
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

std::string text_of(const doctor::GpuReading& gpu, const std::map<std::string, int>& ranks) {
  Families families(MetricLabels{{"node", "n1"}});
  collect_gpus(std::vector<doctor::GpuReading>{gpu}, ranks, families);
  return families.text();
}

}  // namespace

TEST_CASE("EFA counters are exported under their own names") {
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

TEST_CASE("metrics of CPU, memory and interfaces are in base units") {
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

TEST_CASE("values that a host lacks are omitted") {
  const Host host;
  CHECK(host.text().empty());
}

TEST_CASE("GPU metrics are labeled with the GPU and its rank") {
  doctor::GpuReading gpu;
  gpu.index = 2;
  gpu.uuid = "GPU-x";
  gpu.pci_address = "00000000:1C:00.0";
  gpu.power = 650.5;
  gpu.uncorrected_errors = 5;
  gpu.throttle_reasons = 0x44;
  const std::string text = text_of(gpu, {{"0000:1b:00.0", 8}, {"0000:1c:00.0", 9}});
  CHECK_THAT(text, Contains("mpzero_gpu_power_watts{node=\"n1\",gpu=\"2\",uuid=\"GPU-x\",rank=\"9\"} 650.5\n"));
  CHECK_THAT(
      text,
      Contains(
          "mpzero_gpu_ecc_errors_total{node=\"n1\",gpu=\"2\",uuid=\"GPU-x\",rank=\"9\",type=\"uncorrected\"} 5\n"));
  CHECK_THAT(text, Contains("reason=\"sw_power_cap\"} 1\n") && Contains("reason=\"hw_thermal_slowdown\"} 1\n") &&
                       Contains("reason=\"hw_slowdown\"} 0\n"));
  // Errors are read now and then, which their help says.
  CHECK_THAT(text, Contains("driver was loaded. Updated every 30 s.\n") && Contains("draw of the GPU.\n"));
}

TEST_CASE("values that a GPU does not report are omitted, and so is an unknown rank") {
  doctor::GpuReading gpu;
  gpu.temperature = 61;
  const std::string text = text_of(gpu, {});
  CHECK_THAT(text, Contains("mpzero_gpu_temperature_celsius{node=\"n1\",gpu=\"0\",uuid=\"\"} 61\n"));
  CHECK_THAT(text, !Contains("rank") && !Contains("power") && !Contains("ecc") && !Contains("throttled"));
}

TEST_CASE("a hung driver is reported") {
  Families families(MetricLabels{});
  collect_gpus(std::nullopt, {{"0000:1b:00.0", 8}}, families);
  CHECK_THAT(families.text(), Catch::EndsWith("mpzero_gpu_driver_up 0\n"));
  CHECK_THAT(text_of({}, {}), Contains("mpzero_gpu_driver_up{node=\"n1\"} 1\n"));
}

TEST_CASE("each kind of notice is counted") {
  const StandInServer server([](const std::string& request) {
    const auto asks = [&](const char* path) { return request.find(path) != std::string::npos; };
    if (asks("api/token") || asks("instance-id")) return StandInServer::page(200, "x");
    if (asks("instance-action")) {
      return StandInServer::page(200, R"({"action": "terminate", "time": "2100-01-01T00:00:00Z"})");
    }
    return StandInServer::page(404, "");
  });
  StopRequest stop;
  const Ec2Watch watch({.endpoint = {"127.0.0.1", server.port()}, .host = "n"}, stop, [](const std::string&) {});
  pollfd wanted{.fd = stop.descriptor(), .events = POLLIN, .revents = 0};
  REQUIRE(poll(&wanted, 1, 60'000) == 1);
  Families families(MetricLabels{{"node", "n"}});
  collect_ec2(watch, families);
  CHECK_THAT(families.text(), Contains("mpzero_ec2_notices_total{node=\"n\",kind=\"interruption\"} 1\n") &&
                                  Contains("kind=\"rebalance\"} 0\n") && Contains("kind=\"event\"} 0\n"));
}
