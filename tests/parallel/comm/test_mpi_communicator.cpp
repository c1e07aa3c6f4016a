#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <stdexcept>

#include "base/error.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"
#include "tests/parallel/random_collectives.hpp"

namespace mpzero::parallel {

TEST_CASE("collectives run concurrently with the caller if MPI supports several threads") {
  CHECK_FALSE(mpi().lacks_threads());
  CHECK(mpi().communication_thread().runs_beside());
}

TEST_CASE("each collective matches its definition, also around a ring") {
  for (const bool around_ring : {false, true}) {
    MpiCommunicator communicator(mpi(), around_ring);
    check_collectives(communicator, at::kCPU);
  }
}

TEST_CASE("random programs of collectives over several communicators are bitwise equal to a serial computation") {
  const int ranks = mpi().world_size();
  for (unsigned seed = 1; seed <= 6; ++seed) {
    INFO("seed " << seed);
    RandomCollectives(mpi(), seed, /*two_levels=*/ranks % 2 == 0).run(/*collectives=*/30);
  }
}

// A rank that has what it needs of the others must not receive later pieces where earlier ones wait to be added up, nor
// pass on what it has not received. From four ranks on, two that are not the late one can run ahead of it.
TEST_CASE("a rank that joins a collective late gets and contributes the same sums") {
  const int ranks = mpi().world_size();
  // More pieces to each rank than are under way at a time, each element with numbers of its own: exact in fp32.
  constexpr int64_t kShard = 600'000;
  const at::Tensor ramp = at::arange(kShard * ranks).remainder(1'048'573).to(at::kFloat);
  const double factor = ranks * (ranks + 1) / 2.0;
  for (const bool around_ring : {false, true}) {
    INFO("around a ring: " << around_ring);
    for (int late = 0; late < ranks; ++late) {
      INFO("late: " << late);
      MpiCommunicator communicator(mpi(), around_ring), other(mpi());
      const at::Tensor addends = ramp * (mpi().rank() + 1), sum = at::zeros({kShard});
      const at::Tensor full = at::zeros({kShard * ranks});
      const at::Tensor own = ramp.narrow(0, mpi().rank() * kShard, kShard);
      std::vector<std::unique_ptr<PendingCollective>> pending;
      const auto begin = [&] {
        pending.push_back(communicator.reduce_scatter_sum(addends, sum));
        pending.push_back(communicator.all_gather(own, full));
      };
      if (mpi().rank() != late) begin();
      // Meanwhile as much travels on another lane several times: the thread goes around both.
      for (int i = 0; i < 4; ++i) other.all_gather(own, at::zeros({kShard * ranks}))->wait();
      if (mpi().rank() == late) begin();
      for (const auto& one : pending) one->wait();
      CHECK(sum.equal((ramp * factor).narrow(0, mpi().rank() * kShard, kShard)));
      CHECK(full.equal(ramp));
    }
  }
}

TEST_CASE("the control plane works while collectives are in flight") {
  MpiCommunicator communicator(mpi());
  for (int i = 0; i < 20; ++i) {
    const at::Tensor sum = at::full({300'000}, mpi().rank() + 1.0F);
    const auto pending = communicator.all_reduce_sum(sum);
    mpi().barrier();
    REQUIRE(mpi().all_gather(std::string(static_cast<size_t>(i), 'x')).back() ==
            std::string(static_cast<size_t>(i), 'x'));
    pending->wait();
    const double ranks = mpi().world_size();
    REQUIRE(sum.equal(at::full({300'000}, ranks * (ranks + 1) / 2)));
  }
}

TEST_CASE("a collective that only this rank has started is reported as such") {
  MpiCommunicator communicator(mpi());
  const at::Tensor sum = at::ones({100});
  mpi().barrier();
  std::unique_ptr<PendingCollective> pending;
  if (mpi().rank() == 0) {
    pending = communicator.all_reduce_sum(sum);
    if (mpi().world_size() > 1) CHECK(pending->device_work()->state() != CollectiveState::kCompleted);
  }
  mpi().barrier();
  if (mpi().rank() != 0) pending = communicator.all_reduce_sum(sum);
  pending->wait();
  CHECK(pending->device_work()->state() == CollectiveState::kCompleted);
}

TEST_CASE("an error on the communication thread is thrown to waiters and to pollers") {
  // A rank alone adds up nothing.
  if (mpi().world_size() == 1) return;
  MpiCommunicator communicator(mpi()), other(mpi());
  const at::Tensor numbers = at::ones({4000}, at::kLong);
  const auto pending = communicator.all_reduce_sum(numbers);
  CHECK_THROWS_WITH(pending->wait(), Catch::Contains("Long into Long"));
  REQUIRE(communicator.asynchronous_error().has_value());
  CHECK_THAT(*communicator.asynchronous_error(), Catch::Contains("Long into Long"));
  // What comes after it in the same communicator fails alike, and nothing else does.
  CHECK_THROWS_AS(communicator.all_reduce_sum(at::ones({3}))->wait(), Failure);
  CHECK_FALSE(other.asynchronous_error().has_value());
  const at::Tensor sum = at::ones({3});
  other.all_reduce_sum(sum)->wait();
  CHECK(sum.equal(at::full({3}, static_cast<float>(mpi().world_size()))));
}

TEST_CASE("stack unwinding abandons a collective that another rank never joins") {
  if (mpi().world_size() == 1) return;
  const bool joins = mpi().rank() > 0;
  for (const int64_t numel : {10, 3'000'000}) {
    try {
      MpiCommunicator communicator(mpi());
      if (joins) communicator.all_gather(at::ones({numel}), at::zeros({numel * mpi().world_size()}));
      throw std::runtime_error("this rank has failed");
    } catch (const std::runtime_error&) {
    }
  }
  // Others work as before.
  MpiCommunicator communicator(mpi());
  const at::Tensor sum = at::ones({3});
  communicator.all_reduce_sum(sum)->wait();
  CHECK(sum.equal(at::full({3}, static_cast<float>(mpi().world_size()))));
}

}  // namespace mpzero::parallel
