#pragma once

#include <deque>

namespace mpzero::plan {

// Bandwidth of a device's memory, which transfers take from concurrent kernels. Times in seconds.
class SharedMemory {
 public:
  // A transfer from `begin` to `end` whose bytes alone would occupy the memory for `seconds`.
  void take(double begin, double end, double seconds);
  // Returns the end of a kernel that begins at `begin` and would take `seconds` alone. While transfers run, it gets the
  // remaining bandwidth, as if it needed all of it: the largest possible slowdown.
  double work(double begin, double seconds) const;
  // Drops transfers that end before `now`; no kernel begins earlier any more.
  void forget_before(double now);

 private:
  struct Taken {
    double begin, end, share;
  };
  std::deque<Taken> taken_;  // in the order of the calls
};

}  // namespace mpzero::plan
