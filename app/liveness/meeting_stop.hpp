#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "app/health/stop_request.hpp"

namespace mpzero {

// While it exists, ends a rank that is asked to stop: for the time in which the ranks meet, and cannot agree on
// anything.
class MeetingStop {
 public:
  // `end` is called on a separate thread, with kStoppedExitCode or kInterruptedExitCode, once a request is as old as
  // `patience`. `stop` must outlive it.
  MeetingStop(const StopRequest& stop, std::chrono::duration<double> patience, std::function<void(int)> end);

 private:
  std::jthread thread_;
};

}  // namespace mpzero
