#include "io/files/retry.hpp"

#include <cerrno>
#include <thread>

#include "base/error.hpp"

namespace mpzero::io {

bool may_pass(int system_error) {
  switch (system_error) {
    case ESTALE:
    case EINTR:
    case EAGAIN:
    case EIO:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

void Patience::sleep(std::chrono::milliseconds pause) const {
  if (wait) {
    wait(pause);
  } else {
    std::this_thread::sleep_for(pause);
  }
}

void retry_reading(const std::function<void()>& work, const Patience& patience) {
  std::chrono::milliseconds pause = patience.pause;
  for (int attempt = 1;; ++attempt) {
    try {
      return work();
    } catch (const Error& error) {
      if (attempt >= patience.attempts || !may_pass(error.system_error())) throw;
    }
    patience.sleep(pause);
    pause *= 2;
  }
}

}  // namespace mpzero::io
