#pragma once

#include <chrono>
#include <functional>

namespace mpzero::io {

// A network file system sometimes reports a stale file or a read error that disappears a moment later. How often to
// retry, and how to wait in between.
struct Patience {
  int attempts = 4;
  // The first pause. Each further pause is twice as long.
  std::chrono::milliseconds pause{50};
  std::function<void(std::chrono::milliseconds)> wait{};  // none: the thread sleeps

  void sleep(std::chrono::milliseconds pause) const;
};

// Whether the same call may succeed a moment later: ESTALE, EINTR, EAGAIN, EIO, ETIMEDOUT.
bool may_pass(int system_error);

// Calls `work` again from its beginning while it throws an Error of a system call that may pass. `work` must open its
// files itself: an open file stays stale.
void retry_reading(const std::function<void()>& work, const Patience& patience = {});

}  // namespace mpzero::io
