#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "app/exporter/node_recorder.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

using namespace mpzero;
using io::testing::TemporaryFolder;
using nlohmann::json;

namespace {

std::vector<json> lines_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

void ignore(const std::string&) {}

}  // namespace

TEST_CASE("a node's GPUs and EFA devices are recorded") {
  Families metrics(MetricLabels{{"run_id", "7c"}});
  metrics.gauge("mpzero_gpu_utilization_ratio", "", 0.5, {{"gpu", "0"}, {"rank", "8"}});
  metrics.gauge("mpzero_gpu_power_watts", "", 300, {{"gpu", "0"}});
  metrics.gauge("mpzero_gpu_utilization_ratio", "", 0.25, {{"gpu", "1"}});
  metrics.gauge("mpzero_gpu_driver_up", "", 1);
  metrics.counter("mpzero_network_transmit_bytes_total", "", 7, {{"device", "eth0"}});
  for (const char* device : {"rdmap0s6", "rdmap0s7"}) {
    metrics.counter("mpzero_rdma_tx_bytes_total", "", 100, {{"device", device}});
    metrics.counter("mpzero_rdma_rx_bytes_total", "", 200, {{"device", device}});
  }
  CHECK(json(node_facts(metrics)) == json::parse(R"({"sent_bytes": 200, "received_bytes": 400,
      "gpus": {"0": {"utilization_ratio": 0.5, "power_watts": 300}, "1": {"utilization_ratio": 0.25}}})"));
}

TEST_CASE("without EFA, network values are sums over all interfaces except loopback; missing values are omitted") {
  Families metrics(MetricLabels{});
  for (const char* device : {"eth0", "eth1", "lo"}) {
    metrics.counter("mpzero_network_transmit_bytes_total", "", 10, {{"device", device}});
    metrics.counter("mpzero_network_receive_bytes_total", "", 20, {{"device", device}});
  }
  CHECK(json(node_facts(metrics)) == json::parse(R"({"sent_bytes": 20, "received_bytes": 40})"));
  CHECK(node_facts(Families(MetricLabels{})).empty());
}

TEST_CASE("a node is recorded at the start, periodically, and at the end") {
  const TemporaryFolder folder;
  const auto path = folder / "node.jsonl";
  { const NodeRecorder recorder(path, {{"run", "7c"}, {"host", "n0"}}, {}, ignore, std::chrono::hours(1)); }
  const std::vector<json> lines = lines_in(path);
  REQUIRE(lines.size() == 2);
  CHECK((lines[0]["event"] == "node" && lines[0]["run"] == "7c" && lines[0]["host"] == "n0"));
  CHECK(lines[1]["time"] >= lines[0]["time"]);

  std::mutex mutex;
  std::condition_variable changed;
  int collected = 0;
  const Collector count = [&](Families&) {
    const std::lock_guard lock(mutex);
    ++collected;
    changed.notify_all();
  };
  const NodeRecorder recorder(path, json::object(), {count}, ignore, std::chrono::milliseconds(1));
  std::unique_lock lock(mutex);
  // The limit only ends a test that hangs.
  CHECK(changed.wait_for(lock, std::chrono::seconds(60), [&] { return collected >= 4; }));
}

TEST_CASE("a failure to record a node causes a warning with the file") {
  const TemporaryFolder folder;
  std::string warning;
  {
    const NodeRecorder recorder(folder / "missing/node.jsonl", json::object(), {},
                                [&](const std::string& text) { warning = text; });
  }
  CHECK_THAT(warning, Catch::Contains("missing/node.jsonl"));
}
