#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/gpu/gpu_readings.hpp"
#include "app/gpu/shared_library.hpp"
#include "app/health/gpu_condition.hpp"
#include "tests/catch.hpp"

namespace mpzero::doctor {
namespace {

// A driver whose GPUs have these values; see fake_nvml.cpp.
class FakeDriver {
 public:
  explicit FakeDriver(const std::string& values) { setenv("MPZERO_FAKE_NVML", values.c_str(), 1); }
  ~FakeDriver() { unsetenv("MPZERO_FAKE_NVML"); }
  const std::vector<std::string> libraries = {std::string(MPZERO_STAND_INS) + "/libfake_nvml.so"};
};

// Of the stand-in's GPUs; CUDA writes them with four digits.
constexpr const char* kFirst = "0000:1A:00.0";
constexpr const char* kThird = "0000:1c:00.0";

}  // namespace

TEST_CASE("the requested GPUs are read, in base units") {
  const FakeDriver driver("gpus=4 busy=75 clock=1980 temperature=61 used_gib=2 throttle=4 uncorrected=5 nvlink=7");
  GpuReader reader(driver.libraries, {kThird, kFirst});
  const std::vector<GpuReading> gpus = reader.read();
  REQUIRE(gpus.size() == 2);
  const GpuReading& gpu = gpus[1];
  CHECK((gpus[0].index == 0 && gpu.index == 2 && gpu.uuid == "GPU-2" && gpu.pci_address == "00000000:1C:00.0"));
  for (const auto& [value, expected] :
       std::vector<std::pair<std::optional<double>, double>>{{gpu.utilization, 0.75},
                                                             {gpu.memory_utilization, 0.4},
                                                             {gpu.sm_clock, 1.98e9},
                                                             {gpu.memory_clock, 2.619e9},
                                                             {gpu.power, 650.5},
                                                             {gpu.energy, 12'000.5},
                                                             {gpu.temperature, 61},
                                                             {gpu.memory_used, 0x1p31},
                                                             {gpu.memory_total, 80 * 0x1p30},
                                                             {gpu.corrected_errors, 3},
                                                             {gpu.uncorrected_errors, 5},
                                                             {gpu.nvlink_errors, 14}}) {
    CHECK(value.value() == Approx(expected));
  }
  CHECK(gpu.throttle_reasons == 4);
  CHECK_FALSE(gpu.pcie_replays);  // not supported
  CHECK(gpu.xid_errors == 0);
  CHECK_FALSE(gpu.last_xid);
}

TEST_CASE("error counters are read once per kSlowPeriod, and other values in each reading") {
  const FakeDriver driver("gpus=4 nvlink=7 uncorrected=5 busy=75");
  const SharedLibrary stand_in(driver.libraries);
  auto* calls = stand_in.function<long(const char*)>("fakeNvmlCalls");
  REQUIRE(calls != nullptr);
  const auto of_errors = [&] {
    return std::vector<long>{calls("nvmlDeviceGetNvLinkErrorCounter"), calls("nvmlDeviceGetTotalEccErrors"),
                             calls("nvmlDeviceGetPcieReplayCounter"), calls("nvmlEventSetWait_v2")};
  };
  GpuReader reader(driver.libraries, {kFirst, kThird});
  const auto begin = std::chrono::steady_clock::now();
  reader.read(begin);
  const std::vector<long> first = of_errors();
  // Two GPUs, each with two links of four counters, and the question for a third link.
  CHECK(first.front() >= 2 * (2 * 4 + 1));
  const long of_load = calls("nvmlDeviceGetUtilizationRates");

  setenv("MPZERO_FAKE_NVML", "gpus=4 nvlink=8 uncorrected=6 busy=50", 1);
  std::vector<GpuReading> gpus = reader.read(begin + GpuReader::kSlowPeriod - std::chrono::milliseconds(1));
  CHECK(of_errors() == first);
  CHECK(calls("nvmlDeviceGetUtilizationRates") == of_load + 2);
  CHECK(*gpus.at(0).utilization == Approx(0.5));
  CHECK(gpus.at(0).nvlink_errors == 14);
  CHECK(gpus.at(0).uncorrected_errors == 5);

  gpus = reader.read(begin + GpuReader::kSlowPeriod);
  for (size_t i = 0; i < first.size(); ++i) CHECK(of_errors()[i] > first[i]);
  CHECK(gpus.at(1).nvlink_errors == 16);
  CHECK(gpus.at(1).uncorrected_errors == 6);
}

TEST_CASE("a GPU without NVLink has no NVLink error count") {
  const FakeDriver driver("gpus=1 nvlink=-1");
  CHECK_FALSE(GpuReader(driver.libraries, {kFirst}).read().at(0).nvlink_errors);
}

TEST_CASE("Xid errors are counted from the construction of the reader") {
  const FakeDriver driver("gpus=4 xids=2");
  GpuReader reader(driver.libraries, {kFirst, kThird});
  std::vector<GpuReading> gpus = reader.read();
  CHECK(gpus.at(0).xid_errors == 2);
  CHECK(gpus.at(0).last_xid == 79);
  CHECK(gpus.at(1).xid_errors == 0);
  gpus = reader.read();
  CHECK(gpus.at(0).xid_errors == 2);
}

TEST_CASE("a GPU that the driver has lost is omitted, and the others are read") {
  const FakeDriver driver("gpus=4 lost=0");
  GpuReader reader(driver.libraries, {kFirst, kThird});
  REQUIRE(reader.read().size() == 1);
  CHECK(reader.read()[0].index == 2);
}

TEST_CASE("without a driver, no GPU is read") {
  CHECK(GpuReader({"libno-such-library.so"}, {kFirst}).read().empty());
  const FakeDriver driver("gpus=4 init=18");
  CHECK(GpuReader(driver.libraries, {kFirst}).read().empty());
}

TEST_CASE("a GPU throttled by heat or a fault is reported, but not a GPU at its power cap") {
  const auto throttling = [](const std::string& values) {
    const FakeDriver driver(values);
    return gpu_throttling(kThird, driver.libraries);
  };
  CHECK_THAT(throttling("gpus=4 throttle=68"),
             Catch::StartsWith("GPU 2 of ") && Catch::EndsWith(" is throttled (HW Thermal Slowdown)"));
  CHECK(throttling("gpus=4 throttle=68 sick=0").empty());
  CHECK(throttling("gpus=4 throttle=5").empty());
  CHECK(throttling("gpus=4 init=18").empty());
}

}  // namespace mpzero::doctor
