#pragma once

#include <algorithm>
#include <chrono>

namespace mpzero::parallel {

// How long a thread sleeps between two polls for progress that other threads or ranks make: briefly at first, and
// longer the longer nothing has moved.
//
// It sleeps instead of yielding. Since Linux 6.18, and 6.12.63 of the kernels with long support, sched_yield() moves
// the thread's virtual time ahead by its whole slice ("sched/fair: Forfeit vruntime on yield"). A thread that yields
// in a loop is thousands of seconds ahead within seconds, and threads beside it, even of other sessions, starved for up
// to 11 s. A thread that has slept is placed anew when it wakes.
class Pauses {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::microseconds kFirst{5};
  static constexpr std::chrono::microseconds kLongest{1000};

  // Of the poll that has just found nothing.
  Duration next() {
    const Duration pause = next_;
    next_ = std::min<Duration>(2 * next_, kLongest);
    return pause;
  }
  // Something has moved.
  void begin_anew() { next_ = kFirst; }

 private:
  Duration next_ = kFirst;
};

}  // namespace mpzero::parallel
