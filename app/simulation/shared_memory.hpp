#pragma once

#include <deque>

namespace mpzero::plan {

// Memory bandwidth of a device, shared by transfers and kernels. Times are in seconds.
class SharedMemory {
 public:
  // Adds a transfer from `begin` to `end` whose bytes require `seconds` at full memory bandwidth.
  void take(double begin, double end, double seconds);
  // Returns the end time of a kernel that begins at `begin` and takes `seconds` without concurrent transfers. Assumes a
  // memory-bound kernel, which transfers slow down the most.
  double work(double begin, double seconds) const;
  // Removes transfers that end before `now`. Later kernels must not begin before `now`.
  void forget_before(double now);

 private:
  struct Taken {
    double begin, end, share;
  };
  std::deque<Taken> taken_;  // in call order
};

}  // namespace mpzero::plan
