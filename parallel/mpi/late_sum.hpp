#pragma once

#include <memory>

namespace mpzero::parallel {

// Nonblocking all-reduce (sum) of one number. Each call returns the result of the previous call, so that ranks in a
// loop can make a common decision without blocking.
class LateSum {
 public:
  LateSum();
  // Waits until all ranks have started the all-reduce in flight, if any. Does not wait during stack unwinding.
  ~LateSum();
  LateSum(const LateSum&) = delete;
  LateSum& operator=(const LateSum&) = delete;

  // Starts an all-reduce of `value`. Returns the sum of the previous all-reduce (0 in the first call), which is the
  // same on all ranks. Must be called by all ranks. Waits only for the previous all-reduce. Throws Failure if MPI
  // fails.
  int next(int value);

 private:
  struct Round;
  std::unique_ptr<Round> round_;  // on the heap, because MPI writes to its address
};

}  // namespace mpzero::parallel
