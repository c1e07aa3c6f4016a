#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
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
  explicit GuardedCall(std::function<Value()> call) : state_(std::make_shared<State>()) {
    state_->call = std::move(call);
  }

  // What a call returns; std::nullopt: it takes longer than `patience`, or there can be no thread. There is one call at
  // a time: while one does not return, value() waits for that one. For use by one thread.
  std::optional<Value> value(std::chrono::milliseconds patience) {
    std::unique_lock lock(state_->mutex);
    if (!state_->is_running) {
      try {
        std::thread(run, state_).detach();
      } catch (const std::system_error&) {  // no more threads
        return std::nullopt;
      }
      state_->is_running = true;
    }
    if (!state_->returned.wait_for(lock, patience, [&] { return !state_->is_running; })) return std::nullopt;
    return std::move(state_->value);
  }

 private:
  struct State {
    std::function<Value()> call;
    std::mutex mutex;
    std::condition_variable returned;
    bool is_running = false;
    std::optional<Value> value;
  };

  static void run(const std::shared_ptr<State>& state) {
    Value value = state->call();
    const std::lock_guard lock(state->mutex);
    state->value = std::move(value);
    state->is_running = false;
    state->returned.notify_one();
  }

  std::shared_ptr<State> state_;
};

}  // namespace mpzero
