#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace mpzero {

// Calls a function that may never return, such as statvfs() on a network file system that hangs. The call runs on its
// own thread, which is abandoned if it hangs: neither value() nor the destructor waits longer.
template <typename Value>
class GuardedCall {
 public:
  // `call` must not throw. It must own its data: it may still run after this object is destroyed.
  explicit GuardedCall(std::function<Value()> call) : call_(std::move(call)) {}

  // The result of a call; std::nullopt: no result within `patience`, or no thread can be started. At most one call runs
  // at a time: value() waits for the running call, if any. Not thread-safe.
  std::optional<Value> value(std::chrono::milliseconds patience) {
    if (!answer_.valid()) {
      std::packaged_task<Value()> task(call_);
      std::future<Value> answer = task.get_future();
      try {
        std::thread(std::move(task)).detach();
      } catch (const std::system_error&) {  // no more threads
        return std::nullopt;
      }
      answer_ = std::move(answer);
    }
    if (answer_.wait_for(patience) != std::future_status::ready) return std::nullopt;
    return answer_.get();
  }

 private:
  std::function<Value()> call_;
  std::future<Value> answer_;  // valid while a result is pending
};

}  // namespace mpzero
