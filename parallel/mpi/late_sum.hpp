#pragma once

#include <memory>

namespace mpzero::parallel {

// Sum of a number over all MPI ranks, delayed by one round. Lets the ranks agree in a loop without waiting.
class LateSum {
 public:
  LateSum();
  // Waits for a round in progress. Collective in this case.
  ~LateSum();
  LateSum(const LateSum&) = delete;
  LateSum& operator=(const LateSum&) = delete;

  // Starts a round with this rank's `value`. Returns the sum of the previous round (0 in the first round), which is the
  // same on all ranks. Collective. Waits only for the previous round. Throws Failure if MPI fails.
  int next(int value);

 private:
  struct Round;
  std::unique_ptr<Round> round_;  // pointer, because MPI writes to the address of the round
};

}  // namespace mpzero::parallel
