#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/gpu/shared_library.hpp"

// Calls functions of NVIDIA's management library (NVML, https://docs.nvidia.com/deploy/nvml-api) by name, because
// neither the wheels nor the driver contain the header.
namespace mpzero::doctor {

using NvmlResult = int;
using NvmlDevice = void*;
inline constexpr NvmlResult kNvmlSuccess = 0;
// Values of nvmlTemperatureSensors_t, nvmlClockType_t, nvmlMemoryErrorType_t and nvmlEccCounterType_t.
inline constexpr int kTemperatureOfGpu = 0;
inline constexpr int kSmClock = 1, kMemoryClock = 2;
inline constexpr int kCorrected = 0, kUncorrected = 1;
inline constexpr int kVolatile = 0;

// The loaded NVML library, initialized for the lifetime of this object.
class NvmlLibrary {
 public:
  // Loads the first library in `names` that can be loaded, and calls nvmlInit_v2().
  explicit NvmlLibrary(const std::vector<std::string>& names) : library_(names) {
    if (!library_) return;
    auto* initialize = library_.function<NvmlResult()>("nvmlInit_v2");
    if (initialize == nullptr) {
      problem_ = "NVML lacks the function nvmlInit_v2";
      return;
    }
    const NvmlResult result = initialize();
    is_open_ = result == kNvmlSuccess;
    if (is_open_) return;
    auto* error_string = library_.function<const char*(NvmlResult)>("nvmlErrorString");
    problem_ = "NVML cannot be initialized: " +
               (error_string == nullptr ? "error " + std::to_string(result) : std::string(error_string(result)));
  }
  ~NvmlLibrary() {
    if (is_open_) call("nvmlShutdown");
  }
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  explicit operator bool() const { return is_open_; }
  // Returns an error message; empty if the library is not installed.
  const std::string& problem() const { return problem_; }

  // Calls the function `name`. Returns false if the library lacks the function or the call fails.
  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    auto* function = library_.function<NvmlResult(Arguments...)>(name);
    return function != nullptr && function(arguments...) == kNvmlSuccess;
  }
  // Calls a function that returns a value through the last argument. Returns std::nullopt if the call fails.
  template <typename Value, typename... Arguments>
  std::optional<Value> ask(const char* name, Arguments... arguments) const {
    Value value{};
    if (!call(name, arguments..., &value)) return std::nullopt;
    return value;
  }
  // Calls a function whose last arguments are a buffer and its size. Returns the text; empty if the call fails.
  template <typename... Arguments>
  std::string text(const char* name, Arguments... arguments) const {
    std::array<char, 96> text{};
    return call(name, arguments..., text.data(), static_cast<unsigned>(text.size())) ? text.data() : "";
  }

 private:
  SharedLibrary library_;
  bool is_open_ = false;
  std::string problem_;
};

// nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3.
struct NvmlPciInfo {
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};

// nvmlMemory_t, in bytes.
struct NvmlMemory {
  unsigned long long total, free, used;
};

}  // namespace mpzero::doctor
