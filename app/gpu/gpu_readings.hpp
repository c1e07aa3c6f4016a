#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mpzero::doctor {

// Readings of one GPU. Optional values are empty if the GPU or the driver does not report them.
struct GpuReading {
  unsigned index = 0;  // nvidia-smi's index
  std::string uuid;
  std::string pci_address;                          // "00000000:10:1C.0"
  std::optional<double> utilization;                // fraction of the last sample period in which a kernel ran
  std::optional<double> memory_utilization;         // fraction of that period in which GPU memory was read or written
  std::optional<double> sm_clock, memory_clock;     // Hz
  std::optional<double> power;                      // W
  std::optional<double> energy;                     // J since the driver was loaded
  std::optional<double> temperature;                // degrees Celsius
  std::optional<double> memory_used, memory_total;  // bytes
  std::optional<uint64_t> throttle_reasons;         // bits of nvmlClocksThrottleReasons
  std::optional<double> corrected_errors, uncorrected_errors;  // memory errors since the driver was loaded
  std::optional<double> nvlink_errors;                         // replay, recovery and CRC errors of all links
  std::optional<double> pcie_replays;
  std::optional<double> xid_errors;  // since the construction of the GpuReader
  std::optional<double> last_xid;    // number of the last Xid error; empty: none
};

// Severity of throttling. kNone: normal operation, such as a power cap or a configured clock.
enum class ThrottleFault : uint8_t { kNone, kMinor, kMajor };

// A reason for throttling and its name in nvidia-smi.
struct ThrottleReason {
  uint64_t bit;
  const char* name;
  ThrottleFault fault = ThrottleFault::kNone;
};
// nvmlClocksThrottleReasons except for the idle clock: https://docs.nvidia.com/deploy/nvml-api
inline constexpr ThrottleReason kThrottleReasons[] = {{0x02, "Applications Clocks Setting"},
                                                      {0x04, "SW Power Cap"},
                                                      {0x08, "HW Slowdown", ThrottleFault::kMajor},
                                                      {0x10, "Sync Boost"},
                                                      {0x20, "SW Thermal Slowdown", ThrottleFault::kMinor},
                                                      {0x40, "HW Thermal Slowdown", ThrottleFault::kMajor},
                                                      {0x80, "HW Power Brake Slowdown", ThrottleFault::kMajor}};

// Reads GPUs repeatedly through NVIDIA's management library (NVML), which is initialized once.
class GpuReader {
 public:
  // `pci_addresses`: the GPUs to read. Uses the first library in `libraries` that can be loaded.
  GpuReader(const std::vector<std::string>& libraries, const std::vector<std::string>& pci_addresses);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // Interval between reads of the ECC, NVLink, PCIe and Xid error counters. Reading the 72 NVLink counters of an H200
  // takes about 70 ms. Readings within the interval repeat the last values.
  static constexpr std::chrono::seconds kSlowPeriod{30};

  // Returns the readings of all requested GPUs that the driver finds, ordered by index. Returns an empty vector if NVML
  // does not work. `now` must not decrease between calls.
  std::vector<GpuReading> read(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  class Driver;
  std::unique_ptr<Driver> driver_;
};

}  // namespace mpzero::doctor
