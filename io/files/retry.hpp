#pragma once

#include <chrono>
#include <functional>

namespace mpzero::io {

// Retry policy for transient errors of network file systems, such as stale file handles.
struct Patience {
  int attempts = 4;
  // Pause before the first retry. The pause doubles with each retry.
  std::chrono::milliseconds pause{50};
  std::function<void(std::chrono::milliseconds)> wait{};  // called to wait; default: sleep

  void sleep(std::chrono::milliseconds pause) const;
};

// Returns true for errors that may be transient: ESTALE, EINTR, EAGAIN, EIO and ETIMEDOUT.
bool may_pass(int system_error);

// Calls `work` and retries it after transient system errors. `work` must reopen its files because an open stale file
// handle stays invalid.
void retry_reading(const std::function<void()>& work, const Patience& patience = {});

}  // namespace mpzero::io
