#include "app/gpu/gpu_readings.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "app/gpu/nvml_library.hpp"
#include "parallel/comm/gpu_address.hpp"

namespace mpzero::doctor {
namespace {

constexpr int kNvlinkErrors[] = {0, 1, 2, 3};  // replay, recovery, CRC flit and CRC data errors
constexpr unsigned kMostNvlinks = 18;
constexpr unsigned long long kXidEvent = 8;

using TimePoint = std::chrono::steady_clock::time_point;

constexpr double kPercent = 0.01, kMilli = 0.001, kMega = 1e6;

struct Utilization {
  unsigned gpu, memory;  // percent
};

struct EventData {
  NvmlDevice device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

template <typename Number>
std::optional<double> scaled(const std::optional<Number>& number, double unit) {
  return number ? std::optional(static_cast<double>(*number) * unit) : std::nullopt;
}

std::optional<double> nvlink_errors(const NvmlLibrary& library, NvmlDevice device) {
  std::optional<double> sum;
  for (unsigned link = 0; link < kMostNvlinks; ++link) {
    for (const int kind : kNvlinkErrors) {
      const auto count = library.ask<unsigned long long>("nvmlDeviceGetNvLinkErrorCounter", device, link, kind);
      // The first unreadable counter marks the end of the links.
      if (!count) return sum;
      sum = sum.value_or(0) + static_cast<double>(*count);
    }
  }
  return sum;
}

}  // namespace

class GpuReader::Driver {
 public:
  Driver(const std::vector<std::string>& libraries, const std::vector<std::string>& pci_addresses)
      : library_(libraries) {
    if (!library_) return;
    events_ = library_.ask<void*>("nvmlEventSetCreate").value_or(nullptr);
    const unsigned count = library_.ask<unsigned>("nvmlDeviceGetCount_v2").value_or(0);
    for (unsigned index = 0; index < count; ++index) {
      const auto device = library_.ask<NvmlDevice>("nvmlDeviceGetHandleByIndex_v2", index);
      const auto place = device ? library_.ask<NvmlPciInfo>("nvmlDeviceGetPciInfo_v3", *device) : std::nullopt;
      const bool wanted = place && std::any_of(pci_addresses.begin(), pci_addresses.end(), [&](const auto& address) {
                            return parallel::same_gpu(place->address, address);
                          });
      if (!wanted) continue;
      Gpu gpu{.device = *device};
      gpu.reading.index = index;
      gpu.reading.uuid = library_.text("nvmlDeviceGetUUID", *device);
      gpu.reading.pci_address = place->address;
      if (events_ != nullptr && library_.call("nvmlDeviceRegisterEvents", *device, kXidEvent, events_)) {
        gpu.reading.xid_errors = 0;
      }
      gpus_.push_back(std::move(gpu));
    }
  }
  ~Driver() {
    if (events_ != nullptr) library_.call("nvmlEventSetFree", events_);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  std::vector<GpuReading> read(TimePoint now) {
    const bool errors_too = !errors_read_ || now - *errors_read_ >= kSlowPeriod;
    if (errors_too) {
      errors_read_ = now;
      take_events();
    }
    std::vector<GpuReading> readings;
    for (Gpu& gpu : gpus_) {
      read_state(gpu);
      if (errors_too) read_errors(gpu);
      readings.push_back(gpu.reading);
    }
    return readings;
  }

 private:
  struct Gpu {
    NvmlDevice device = nullptr;
    GpuReading reading = {};
  };

  void take_events() {
    EventData event{};
    constexpr unsigned kDoNotWait = 0;
    while (events_ != nullptr && library_.call("nvmlEventSetWait_v2", events_, &event, kDoNotWait)) {
      for (Gpu& gpu : gpus_) {
        if (gpu.device != event.device || event.type != kXidEvent) continue;
        gpu.reading.xid_errors = gpu.reading.xid_errors.value_or(0) + 1;
        gpu.reading.last_xid = static_cast<double>(event.data);
      }
    }
  }

  // Values that change every second.
  void read_state(Gpu& gpu) const {
    GpuReading& to = gpu.reading;
    const NvmlDevice device = gpu.device;
    const auto number = [&](const char* name, auto... arguments) {
      return library_.ask<unsigned>(name, device, arguments...);
    };
    const auto large = [&](const char* name, auto... arguments) {
      return library_.ask<unsigned long long>(name, device, arguments...);
    };
    const auto utilization = library_.ask<Utilization>("nvmlDeviceGetUtilizationRates", device);
    to.utilization = utilization ? std::optional(utilization->gpu * kPercent) : std::nullopt;
    to.memory_utilization = utilization ? std::optional(utilization->memory * kPercent) : std::nullopt;
    to.sm_clock = scaled(number("nvmlDeviceGetClockInfo", kSmClock), kMega);
    to.memory_clock = scaled(number("nvmlDeviceGetClockInfo", kMemoryClock), kMega);
    to.power = scaled(number("nvmlDeviceGetPowerUsage"), kMilli);
    to.energy = scaled(large("nvmlDeviceGetTotalEnergyConsumption"), kMilli);
    to.temperature = scaled(number("nvmlDeviceGetTemperature", kTemperatureOfGpu), 1);
    const auto memory = library_.ask<NvmlMemory>("nvmlDeviceGetMemoryInfo", device);
    to.memory_used = memory ? std::optional(static_cast<double>(memory->used)) : std::nullopt;
    to.memory_total = memory ? std::optional(static_cast<double>(memory->total)) : std::nullopt;
    to.throttle_reasons = large("nvmlDeviceGetCurrentClocksThrottleReasons");
  }

  // Counters that rarely change.
  void read_errors(Gpu& gpu) const {
    GpuReading& to = gpu.reading;
    const auto of_memory = [&](int kind) {
      return library_.ask<unsigned long long>("nvmlDeviceGetTotalEccErrors", gpu.device, kind, kVolatile);
    };
    to.corrected_errors = scaled(of_memory(kCorrected), 1);
    to.uncorrected_errors = scaled(of_memory(kUncorrected), 1);
    to.nvlink_errors = nvlink_errors(library_, gpu.device);
    to.pcie_replays = scaled(library_.ask<unsigned>("nvmlDeviceGetPcieReplayCounter", gpu.device), 1);
  }

  NvmlLibrary library_;
  void* events_ = nullptr;
  std::vector<Gpu> gpus_;
  std::optional<TimePoint> errors_read_;
};

GpuReader::GpuReader(const std::vector<std::string>& libraries, const std::vector<std::string>& pci_addresses)
    : driver_(std::make_unique<Driver>(libraries, pci_addresses)) {}

GpuReader::~GpuReader() = default;

std::vector<GpuReading> GpuReader::read(std::chrono::steady_clock::time_point now) { return driver_->read(now); }

}  // namespace mpzero::doctor
