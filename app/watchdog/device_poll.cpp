#include "app/watchdog/device_poll.hpp"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <exception>
#include <latch>
#include <utility>

namespace mpzero {

void DevicePoll::use_device(at::Device device) {
  std::latch uses(1);
  thread_ = std::jthread([this, device, &uses](const std::stop_token& leaving) {
    if (device.is_cuda()) c10::cuda::set_device(device.index());
    index_ = device.index();
    type_ = device.type();
    uses.count_down();
    run(leaving);
  });
  uses.wait();
}

void DevicePoll::watch(std::vector<parallel::Communicator*> communicators) {
  const std::lock_guard lock(asking_);
  communicators_ = std::move(communicators);
}

std::optional<DevicePoll::Error> DevicePoll::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void DevicePoll::run(const std::stop_token& leaving) {
  constexpr std::chrono::milliseconds kTurn(100);
  std::unique_lock lock(mutex_);
  while (!leaving.stop_requested() && !error_) {
    lock.unlock();
    std::optional<Error> error = ask();
    lock.lock();
    error_ = std::move(error);
    leaves_.wait_for(lock, leaving, kTurn, [] { return false; });
  }
}

std::optional<DevicePoll::Error> DevicePoll::ask() {
  try {
    recorder_.poll();
  } catch (const c10::Error& error) {
    return Error{Why::kDeviceError, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return Error{Why::kDeviceError, error.what()};
  }
  const std::lock_guard lock(asking_);
  for (parallel::Communicator* communicator : communicators_) {
    if (std::optional<std::string> error = communicator->asynchronous_error()) {
      return Error{Why::kCommunicatorError, *std::move(error)};
    }
  }
  return std::nullopt;
}

}  // namespace mpzero
