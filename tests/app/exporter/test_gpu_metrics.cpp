#include "app/exporter/gpu_metrics.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using Catch::Contains;

namespace {

std::string text_of(const doctor::GpuReading& gpu, const std::map<std::string, int>& ranks) {
  Families families(MetricLabels{{"node", "n1"}});
  collect_gpus(std::vector<doctor::GpuReading>{gpu}, ranks, families);
  return families.text();
}

}  // namespace

TEST_CASE("a GPU's metrics name it and the rank that trains on it") {
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
}

TEST_CASE("the help of errors gives their age") {
  doctor::GpuReading gpu;
  gpu.corrected_errors = gpu.nvlink_errors = gpu.last_xid = 1;
  gpu.power = 650.5;
  const std::string text = text_of(gpu, {});
  CHECK_THAT(text, Contains("# HELP mpzero_gpu_nvlink_errors_total Replays, recoveries and CRC errors of all NVLinks. "
                            "Read once in 30 s.\n") &&
                       Contains("newest Xid error. Read once in 30 s.\n") &&
                       Contains("driver was loaded. Read once in 30 s.\n") && Contains("GPU draws.\n"));
}

TEST_CASE("what a GPU does not report is left out, and so is a rank that is not known") {
  doctor::GpuReading gpu;
  gpu.temperature = 61;
  const std::string text = text_of(gpu, {});
  CHECK_THAT(text, Contains("mpzero_gpu_temperature_celsius{node=\"n1\",gpu=\"0\",uuid=\"\"} 61\n"));
  CHECK_THAT(text, !Contains("rank") && !Contains("power") && !Contains("ecc") && !Contains("throttled"));
}

TEST_CASE("a driver that hangs is named") {
  Families families(MetricLabels{});
  collect_gpus(std::nullopt, {{"0000:1b:00.0", 8}}, families);
  CHECK_THAT(families.text(), Catch::EndsWith("mpzero_gpu_driver_up 0\n"));
  CHECK_THAT(text_of({}, {}), Contains("mpzero_gpu_driver_up{node=\"n1\"} 1\n"));
}
