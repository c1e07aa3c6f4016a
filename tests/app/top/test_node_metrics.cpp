#include "app/top/node_metrics.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

namespace {

const std::string kBefore =
    "# HELP mpzero_host_cpu_seconds_total Time of all cores together.\n"
    "mpzero_host_cpu_seconds_total{node=\"a\",mode=\"user\"} 100\n"
    "mpzero_host_cpu_seconds_total{node=\"a\",mode=\"idle\"} 300\n"
    "mpzero_network_transmit_bytes_total{device=\"eth0\"} 1000\n"
    "mpzero_network_transmit_bytes_total{device=\"lo\"} 0\n";
const std::string kNow =
    "mpzero_host_cpu_seconds_total{node=\"a\",mode=\"user\"} 103\n"
    "mpzero_host_cpu_seconds_total{node=\"a\",mode=\"idle\"} 301\n"
    "mpzero_network_transmit_bytes_total{device=\"eth0\"} 5000\n"
    "mpzero_network_transmit_bytes_total{device=\"lo\"} 9999\n"
    "mpzero_host_memory_available_bytes{node=\"a\"} 1024\n"
    "mpzero_gpu_utilization_ratio{gpu=\"3\",rank=\"3\"} 0.97\n"
    "mpzero_gpu_memory_used_bytes{gpu=\"3\"} 7\n"
    "mpzero_gpu_throttled{gpu=\"3\",reason=\"sw_power_cap\"} 1\n"
    "mpzero_gpu_throttled{gpu=\"10\",reason=\"hw_thermal_slowdown\"} 1\n";

NodeView look(const std::string& before, const std::string& now, double seconds) {
  return view_of("a", parse_samples(before), parse_samples(now), seconds);
}

}  // namespace

TEST_CASE("samples of Prometheus' text format") {
  const MetricSamples samples = parse_samples("# TYPE x gauge\nx 1\nx{a=\"b c\"} 2.5e3\nno number\ny\nz abc\n\nw -7");
  CHECK(samples == MetricSamples{{"x", 1}, {"x{a=\"b c\"}", 2500}, {"w", -7}});
}

TEST_CASE("what a node does between two scrapes") {
  const NodeView node = look(kBefore, kNow, 2);
  CHECK(*node.cpu == Approx(0.75));
  CHECK(*node.sent == Approx(2000));
  CHECK_FALSE(node.received);
  CHECK(node.memory_available == 1024);
  REQUIRE(node.gpus.size() == 2);
  CHECK((node.gpus[0].index == 3 && node.gpus[1].index == 10));
  CHECK(node.gpus[0].utilization == 0.97);
  CHECK_FALSE(node.gpus[0].watts);
  CHECK_FALSE(node.gpus[0].throttled);
  CHECK(node.gpus[1].throttled);
}

TEST_CASE("EFA's bytes come before those of the interfaces") {
  const std::string efa = "mpzero_rdma_tx_bytes_total{device=\"efa0\"} ";
  CHECK(*look(kBefore + efa + "0\n", kNow + efa + "4e9\n", 2).sent == Approx(2e9));
}

TEST_CASE("without a scrape before there are no rates, and a counter that begins anew has none") {
  const NodeView node = look("", kNow, 0);
  CHECK((!node.cpu && !node.sent && node.memory_available));
  CHECK_FALSE(look(kNow, kBefore, 2).sent);
}
