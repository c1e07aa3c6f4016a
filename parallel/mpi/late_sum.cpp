#include "parallel/mpi/late_sum.hpp"

#include "base/unwinding.hpp"
#include "parallel/mpi/mpi_check.hpp"
#include "parallel/mpi/patient_wait.hpp"

namespace mpzero::parallel {

struct LateSum::Round {
  int mine = 0;
  int sum = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  Unwinding unwinding;
};

LateSum::LateSum() : round_(std::make_unique<Round>()) {}

LateSum::~LateSum() {
  if (round_->request == MPI_REQUEST_NULL) return;
  // If this rank fails between rounds, the other ranks are still in the loop, so this rank must not wait for them.
  if (round_->unwinding.now()) {
    // NOLINTNEXTLINE(bugprone-unused-return-value): MPI may still write to the round
    (void)round_.release();
    return;
  }
  wait_patiently(round_->request);
}

int LateSum::next(int value) {
  MPZERO_MPI_CHECK(wait_patiently(round_->request));
  const int before = round_->sum;
  round_->mine = value;
  round_->sum = 0;
  MPZERO_MPI_CHECK(MPI_Iallreduce(&round_->mine, &round_->sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &round_->request));
  return before;
}

}  // namespace mpzero::parallel
