#include "app/health/stop_request.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.hpp"
#include "base/text/times.hpp"

namespace mpzero {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGINT};
constexpr int kOwnRequest = -1;

// State shared with the signal handler, which cannot access the StopRequest.
struct Received {
  std::atomic<int> signal{0};
  std::atomic<int64_t> at{0};  // monotonic clock, in nanoseconds
  std::atomic<int> interrupts{0};
  std::atomic<int> wake{-1};  // write end of the pipe
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
Received received;

// Calls only async-signal-safe functions.
void handle(int signal) {
  const int saved_errno = errno;
  int none = 0;
  if (received.signal.compare_exchange_strong(none, signal)) received.at = monotonic_nanoseconds();
  if (signal == SIGINT && received.interrupts.fetch_add(1) == 0) {
    constexpr char kText[] =
        "\nmpzero: interrupted: saving completed steps before exit; interrupt again to exit immediately without "
        "saving.\n";
    (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  const char byte = 1;
  (void)!write(received.wake, &byte, 1);
  errno = saved_errno;
}

}  // namespace

StopRequest::StopRequest() {
  if (pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) throw_failure("pipe2 failed: {}", std::strerror(errno));
  received.signal = 0;
  received.at = 0;
  received.interrupts = 0;
  received.wake = pipe_[1];
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const int signal : kSignals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, before);
  }
}

StopRequest::~StopRequest() {
  for (const auto& [signal, before] : before_) sigaction(signal, &before, nullptr);
  received.wake = -1;
  close(pipe_[0]);
  close(pipe_[1]);
}

void StopRequest::ignore_signals() {
  for (auto& [signal, before] : before_) {
    if (signal == SIGINT) continue;
    before = {};
    before.sa_handler = SIG_IGN;
    sigaction(signal, &before, nullptr);
  }
}

int StopRequest::source() { return received.signal; }

void StopRequest::request(const std::string& reason, double seconds_left) {
  {
    const std::lock_guard lock(mutex_);
    if (requested()) return;
    own_reason_ = reason;
    own_seconds_left_ = seconds_left;
    // A signal that arrives at this point takes precedence.
    int none = 0;
    received.at = monotonic_nanoseconds();
    if (!received.signal.compare_exchange_strong(none, kOwnRequest)) return;
  }
  const char byte = 1;
  (void)!write(pipe_[1], &byte, 1);
}

std::string StopRequest::reason() const {
  const int first = source();
  if (first == 0) return "";
  if (first > 0) return signal_name(first);
  const std::lock_guard lock(mutex_);
  return own_reason_;
}

double StopRequest::seconds_left() const {
  if (!is_own()) return 0;
  const std::lock_guard lock(mutex_);
  return own_seconds_left_ == 0 ? 0 : own_seconds_left_ - seconds_since();
}

double StopRequest::seconds_since() const {
  const int64_t at = received.at;
  return at == 0 ? 0 : static_cast<double>(monotonic_nanoseconds() - at) / 1e9;
}

bool StopRequest::is_immediate() const { return received.interrupts > 1; }

void StopRequest::drain() const {
  std::array<char, 64> bytes{};
  while (read(pipe_[0], bytes.data(), bytes.size()) > 0) continue;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace mpzero
