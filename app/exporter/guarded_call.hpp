#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace mpzero {

// Calls a function that may never return, as statvfs() of a network file system that hangs. The call is made in a
// thread of its own, which is abandoned where it does not return: neither value() nor the destructor waits for it any
// longer.
template <typename Value>
class GuardedCall {
 public:
  // `call` must not throw. It must own what it uses: it may be at work after this has been destroyed.
  explicit GuardedCall(std::function<Value()> call) : call_(std::move(call)) {}

  // What a call returns; std::nullopt: it takes longer than `patience`, or there can be no thread. There is one call at
  // a time: while one does not return, value() waits for that one. For use by one thread.
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
  std::future<Value> answer_;  // valid: of the call that is at work
};

}  // namespace mpzero
