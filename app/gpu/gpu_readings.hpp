#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mpzero::doctor {

// Readings of one GPU at one time. An optional is empty if this GPU or driver does not report the value.
struct GpuReading {
  unsigned index = 0;  // the driver's, as shown by nvidia-smi
  std::string uuid;
  std::string pci_address;                                     // "00000000:10:1C.0"
  std::optional<double> utilization;                           // share of the last sample period with a kernel running
  std::optional<double> memory_utilization;                    // share of the last sample period with memory accesses
  std::optional<double> sm_clock, memory_clock;                // Hz
  std::optional<double> power;                                 // W
  std::optional<double> energy;                                // J since the driver was loaded
  std::optional<double> temperature;                           // degrees Celsius
  std::optional<double> memory_used, memory_total;             // bytes
  std::optional<uint64_t> throttle_reasons;                    // bits of nvmlClocksThrottleReasons
  std::optional<double> corrected_errors, uncorrected_errors;  // in memory, since the driver was loaded
  std::optional<double> nvlink_errors;                         // replays, recoveries and CRC errors of all links
  std::optional<double> pcie_replays;
  std::optional<double> xid_errors;  // since this GpuReader was made
  std::optional<double> last_xid;    // number of the last one; empty: none
};

// Severity of throttling. kNone: normal operation, e.g. a power cap or a clock that was set.
enum class ThrottleFault : uint8_t { kNone, kMinor, kMajor };

// A reason for throttling, with nvidia-smi's name for it.
struct ThrottleReason {
  uint64_t bit;
  const char* name;
  ThrottleFault fault = ThrottleFault::kNone;
};
// nvmlClocksThrottleReasons without the idle clock: https://docs.nvidia.com/deploy/nvml-api
inline constexpr ThrottleReason kThrottleReasons[] = {{0x02, "Applications Clocks Setting"},
                                                      {0x04, "SW Power Cap"},
                                                      {0x08, "HW Slowdown", ThrottleFault::kMajor},
                                                      {0x10, "Sync Boost"},
                                                      {0x20, "SW Thermal Slowdown", ThrottleFault::kMinor},
                                                      {0x40, "HW Thermal Slowdown", ThrottleFault::kMajor},
                                                      {0x80, "HW Power Brake Slowdown", ThrottleFault::kMajor}};

// Reads GPUs repeatedly through NVIDIA's management library (NVML), in one session.
class GpuReader {
 public:
  // `pci_addresses`: the GPUs to read. Opens the first of `libraries` that can be loaded.
  GpuReader(const std::vector<std::string>& libraries, const std::vector<std::string>& pci_addresses);
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // Errors (ECC, NVLink, PCIe, Xid) are rare and their counters slow to read: the 72 NVLink counters of an H200 take
  // about 70 ms. They are read once per period; readings in between repeat them.
  static constexpr std::chrono::seconds kSlowPeriod{30};

  // Readings of the GPUs that the driver finds, by index. Empty if NVML does not work. `now`: not before that of the
  // last call.
  std::vector<GpuReading> read(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  class Driver;
  std::unique_ptr<Driver> driver_;
};

}  // namespace mpzero::doctor
