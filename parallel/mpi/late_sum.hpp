#pragma once

#include <memory>

namespace mpzero::parallel {

// A number's sum over all MPI ranks, one round late: what a loop agrees on without standing still for it.
class LateSum {
 public:
  LateSum();
  // Collective where a round is under way: waits for it.
  ~LateSum();
  LateSum(const LateSum&) = delete;
  LateSum& operator=(const LateSum&) = delete;

  // Starts a round with this rank's `value` and returns the sum of the round before it, 0 in the first: the same on all
  // ranks. Collective; waits for that earlier round only. Throws Failure.
  int next(int value);

 private:
  struct Round;
  std::unique_ptr<Round> round_;  // at an address that stays, since MPI writes into it
};

}  // namespace mpzero::parallel
