#pragma once

#include <deque>

namespace mpzero::plan {

// The bandwidth of a device's memory, which transfers take from the kernels beside them. Times in seconds.
class SharedMemory {
 public:
  // Something that runs from `begin` to `end` reads and writes what the memory alone passes in `seconds`.
  void take(double begin, double end, double seconds);
  // A kernel that would take `seconds` alone, from `begin`: while transfers run it has the rest of the bandwidth, as if
  // it needed all of it. That is the most that it may lose. Returns when it ends.
  double work(double begin, double seconds) const;
  // No kernel begins before `now` any more.
  void forget_before(double now);

 private:
  struct Taken {
    double begin, end, share;
  };
  std::deque<Taken> taken_;  // in the order of the calls
};

}  // namespace mpzero::plan
