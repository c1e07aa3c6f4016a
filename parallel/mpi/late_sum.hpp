#pragma once

#include <memory>

namespace mpzero::parallel {

// Nonblocking all-reduce (sum) of one number. Each call returns the result of the previous call, so that ranks in a
// loop can make a common decision without blocking.
class LateSum {
 public:
  LateSum();
  // Waits for the round in flight, if any; collective in this case.
  ~LateSum();
  LateSum(const LateSum&) = delete;
  LateSum& operator=(const LateSum&) = delete;

  // Starts a round with this rank's `value`. Returns the sum of the previous round (0 in the first round), which is the
  // same on all ranks. Collective. Waits only for the previous round. Throws Failure if MPI fails.
  int next(int value);

 private:
  struct Round;
  std::unique_ptr<Round> round_;  // on the heap, because MPI writes to its address
};

}  // namespace mpzero::parallel
