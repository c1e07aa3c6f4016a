#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace mpzero {

// Calls a function that may never return, such as statvfs() on a hung network file system. The call runs on a separate
// thread. A hung thread is abandoned, so neither value() nor the destructor blocks.
template <typename Value>
class GuardedCall {
 public:
  // `call` must not throw, and must own its data because it may outlive this object.
  explicit GuardedCall(std::function<Value()> call) : call_(std::move(call)) {}

  // Returns the result of a call; std::nullopt if there is no result within `patience`, or if no thread can be started.
  // At most one call runs at a time: if a call is still running, value() waits for that call. Not thread-safe.
  std::optional<Value> value(std::chrono::milliseconds patience) {
    if (!answer_.valid()) {
      std::packaged_task<Value()> task(call_);
      std::future<Value> answer = task.get_future();
      try {
        std::thread(std::move(task)).detach();
      } catch (const std::system_error&) {  // no thread can be created
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
