#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "app/gpu/shared_library.hpp"

// Calls functions of NVIDIA's management library (NVML) by name: neither the wheels nor the driver include its header.
// https://docs.nvidia.com/deploy/nvml-api
namespace mpzero::doctor {

using NvmlResult = int;
using NvmlDevice = void*;
inline constexpr NvmlResult kNvmlSuccess = 0;
// Values of NVML's enumerations: temperature sensors, clocks, and types and lifetimes of memory error counters.
inline constexpr int kTemperatureOfGpu = 0;
inline constexpr int kSmClock = 1, kMemoryClock = 2;
inline constexpr int kCorrected = 0, kUncorrected = 1;
inline constexpr int kVolatile = 0;

// The library, with a driver session during the lifetime of this object.
class NvmlLibrary {
 public:
  // Opens the first of `names` that can be loaded, and starts the session.
  explicit NvmlLibrary(const std::vector<std::string>& names) : library_(names) {
    if (!library_) return;
    auto* initialize = library_.function<NvmlResult()>("nvmlInit_v2");
    if (initialize == nullptr) {
      problem_ = "NVIDIA's management library lacks nvmlInit_v2";
      return;
    }
    const NvmlResult result = initialize();
    is_open_ = result == kNvmlSuccess;
    if (is_open_) return;
    auto* error_string = library_.function<const char*(NvmlResult)>("nvmlErrorString");
    problem_ = "NVIDIA's management library does not start: " +
               (error_string == nullptr ? "error " + std::to_string(result) : std::string(error_string(result)));
  }
  ~NvmlLibrary() {
    if (is_open_) call("nvmlShutdown");
  }
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  explicit operator bool() const { return is_open_; }
  // Why it does not work; empty if the library is only missing.
  const std::string& problem() const { return problem_; }

  // Calls `name` with `arguments`. False if the library lacks the function, or the call fails.
  template <typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    auto* function = library_.function<NvmlResult(Arguments...)>(name);
    return function != nullptr && function(arguments...) == kNvmlSuccess;
  }
  // The value that `name` returns through a pointer after `arguments`; std::nullopt: the call fails.
  template <typename Value, typename... Arguments>
  std::optional<Value> ask(const char* name, Arguments... arguments) const {
    Value value{};
    if (!call(name, arguments..., &value)) return std::nullopt;
    return value;
  }
  // The text that `name` writes into a buffer after `arguments`; empty: none.
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

// Version 3 of the structure.
struct NvmlPciInfo {
  char legacy_address[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};

// Bytes.
struct NvmlMemory {
  unsigned long long total, free, used;
};

}  // namespace mpzero::doctor
