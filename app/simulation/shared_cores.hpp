#pragma once

#include <cstdint>
#include <deque>

namespace mpzero::plan {

// The cores of a rank that trains on the CPU. Work runs in program order. Collectives run one after another,
// concurrently with work if several threads may use MPI. Both are then slower while they overlap, since the thread that
// moves tensors has no dedicated core.
class SharedCores {
 public:
  struct Options {
    bool moves_beside = false;  // collectives overlap with work; else they are synchronous
    double share = 1;           // share of full speed of work and collective while both run
  };
  struct Move {
    int64_t number = 0;
    double now = 0;
  };

  explicit SharedCores(const Options& options) : options_(options) {}
  // All return the time afterwards. Times never decrease from call to call.
  double work(double now, double seconds);
  Move move(double now, double seconds);
  // Waits until the move with this number has ended.
  double wait(double now, int64_t number);

 private:
  Options options_;
  std::deque<double> left_;  // remaining seconds of unfinished moves
  int64_t ended_ = 0;
};

}  // namespace mpzero::plan
