#pragma once

#include <memory>

namespace mpzero::parallel {

// The sum of a number over all MPI ranks, one round late: lets a loop agree on something without waiting.
class LateSum {
 public:
  LateSum();
  // Collective if a round is in progress: waits for it.
  ~LateSum();
  LateSum(const LateSum&) = delete;
  LateSum& operator=(const LateSum&) = delete;

  // Starts a round with this rank's `value` and returns the sum of the previous round, 0 in the first: the same on all
  // ranks. Collective; waits only for the previous round. Throws Failure.
  int next(int value);

 private:
  struct Round;
  std::unique_ptr<Round> round_;  // at a stable address, because MPI writes to it
};

}  // namespace mpzero::parallel
