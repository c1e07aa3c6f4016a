#pragma once

#include <cstdint>
#include <deque>

namespace mpzero::plan {

// The cores of a rank that computes on them. Its work runs in the order of the program. Collectives run one after
// another, beside the work where MPI may be used by several threads: then both are slower while both run, since the
// thread that moves tensors has no core of its own.
class SharedCores {
 public:
  struct Options {
    bool moves_beside = false;  // else a collective has ended when it returns
    double share = 1;           // of their speed that work and collective have while both run
  };
  struct Move {
    int64_t number = 0;
    double now = 0;
  };

  explicit SharedCores(const Options& options) : options_(options) {}
  // All return the time afterwards. Times never fall from call to call.
  double work(double now, double seconds);
  Move move(double now, double seconds);
  // Until the move of that number has ended.
  double wait(double now, int64_t number);

 private:
  Options options_;
  std::deque<double> left_;  // seconds of the moves that have not ended
  int64_t ended_ = 0;
};

}  // namespace mpzero::plan
