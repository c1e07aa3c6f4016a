#pragma once

#include <chrono>
#include <functional>

namespace mpzero::io {

// A network file system says now and then that a file is stale, or that it cannot be read, which holds a moment later
// no more. How often that is believed to pass, and what waits meanwhile.
struct Patience {
  int attempts = 4;
  // The first pause; each further one is twice as long.
  std::chrono::milliseconds pause{50};
  std::function<void(std::chrono::milliseconds)> wait{};  // none: the thread sleeps
};

// Whether the same call may succeed a moment later: ESTALE, EINTR, EAGAIN, EIO, ETIMEDOUT.
bool may_pass(int system_error);

// Calls `work` again, from its beginning, while it throws an Error of a system call that may pass. `work` opens what it
// reads itself: a file that is open stays stale.
void retry_reading(const std::function<void()>& work, const Patience& patience = {});

}  // namespace mpzero::io
