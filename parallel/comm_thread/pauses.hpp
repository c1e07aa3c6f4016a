#pragma once

#include <algorithm>
#include <chrono>

namespace mpzero::parallel {

// Backoff for a thread that polls for progress of other threads or ranks. The pauses between polls start short and
// double up to a limit.
//
// A polling thread sleeps instead of calling sched_yield(). Since Linux 6.18 (and 6.12.63 LTS), sched_yield() advances
// the thread's vruntime by its whole slice ("sched/fair: Forfeit vruntime on yield"). Within seconds, the vruntime of a
// thread that yields in a loop is thousands of seconds ahead. Threads on the same core, even in other sessions, were
// starved for up to 11 s. The scheduler resets the vruntime of a thread that wakes from sleep.
class Pauses {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::microseconds kFirst{5};
  static constexpr std::chrono::microseconds kLongest{1000};

  // Returns the pause after a poll without progress.
  Duration next() {
    const Duration pause = next_;
    next_ = std::min<Duration>(2 * next_, kLongest);
    return pause;
  }
  // Resets the backoff. Must be called after a poll with progress.
  void begin_anew() { next_ = kFirst; }

 private:
  Duration next_ = kFirst;
};

}  // namespace mpzero::parallel
