#pragma once

#include <cstdint>
#include <deque>

namespace mpzero::plan {

// The cores of a rank that trains on the CPU. Work runs in program order, and collectives run one after another. If MPI
// supports several threads, collectives overlap with work, and both are slower during the overlap because the
// communication thread has no dedicated core.
class SharedCores {
 public:
  struct Options {
    bool moves_beside = false;  // true: collectives overlap with work; false: synchronous
    double share = 1;           // relative speed of work and collectives during overlap
  };
  struct Move {
    int64_t number = 0;
    double now = 0;
  };

  explicit SharedCores(const Options& options) : options_(options) {}
  // In work(), move() and wait(), `now` is the host's time at the start of the call, and the result contains the host's
  // time at the end. `now` must not decrease between calls.
  double work(double now, double seconds);
  Move move(double now, double seconds);
  // Waits until collective `number` has completed.
  double wait(double now, int64_t number);

 private:
  Options options_;
  std::deque<double> left_;  // remaining seconds of unfinished collectives
  int64_t ended_ = 0;
};

}  // namespace mpzero::plan
