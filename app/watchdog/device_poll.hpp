#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "app/watchdog/evidence.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// Polls the progress of a device's collectives and the asynchronous errors of communicators ten times per second. A
// hung driver blocks only the polling thread.
class DevicePoll {
 public:
  explicit DevicePoll(parallel::FlightRecorder& recorder) : recorder_(recorder) {}

  // Starts the polling thread and returns once the thread has selected the device. No thread may call setenv() during
  // this call, because CUDA reads the environment.
  void use_device(at::Device device);
  // Sets the communicators to poll. Previous communicators are not used after this function returns.
  void watch(std::vector<parallel::Communicator*> communicators);

  struct Error {
    Why why = Why::kDeviceError;
    std::string text;
  };
  // Returns the first error; std::nullopt if none has occurred. Thread-safe.
  std::optional<Error> error() const;
  at::Device device() const { return at::Device(at::Device::Type(type_.load()), index_.load()); }

 private:
  void run(const std::stop_token& leaving);
  std::optional<Error> ask();

  parallel::FlightRecorder& recorder_;
  std::atomic<at::DeviceType> type_{at::kCPU};
  std::atomic<c10::DeviceIndex> index_{-1};
  std::mutex asking_;  // guards communicators_
  std::vector<parallel::Communicator*> communicators_;
  mutable std::mutex mutex_;  // guards error_
  std::optional<Error> error_;
  std::condition_variable_any leaves_;
  std::jthread thread_;  // last: joined before the other members are destroyed
};

}  // namespace mpzero
