#include <chrono>
#include <thread>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/comm_thread/pauses.hpp"
#include "tests/parallel/collective_checks.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

TEST_CASE("MPI collectives") {
  MpiCommunicator communicator(mpi());
  check_collectives(communicator, at::kCPU);
}

TEST_CASE("the ranks of a machine are a separate group") {
  const std::unique_ptr<MpiRuntime> machine = mpi().this_machine();
  CHECK(machine->rank() == mpi().local_rank());
  CHECK(machine->world_size() == mpi().local_size());
  MpiCommunicator communicator(*machine);
  check_collectives(communicator, at::kCPU);
  CHECK(broadcast(*machine, machine->rank() + 17) == 17);
}

// The clock is that of the machine, on which all ranks are.
TEST_CASE("a barrier, and a call of the control plane, end after the last rank has joined") {
  using Clock = std::chrono::steady_clock;
  const auto ticks = [] { return Clock::now().time_since_epoch().count(); };
  for (int late = 0; late < mpi().world_size(); ++late) {
    for (const bool gathers : {false, true}) {
      INFO("late: " << late << ", gathers: " << gathers);
      // Longer than the longest pause between two polls, so that the others have gone through all of them.
      if (mpi().rank() == late) std::this_thread::sleep_for(10 * Pauses::kLongest);
      const auto came = ticks();
      gathers ? static_cast<void>(mpi().all_gather("")) : mpi().barrier();
      const auto left = ticks();
      for (const auto each : all_gather(mpi(), came)) CHECK(each <= left);
    }
  }
}

TEST_CASE("strings of different lengths are gathered in rank order") {
  const std::vector<std::string> texts = mpi().all_gather(std::string(static_cast<size_t>(mpi().rank()) * 3, 'x'));
  REQUIRE(texts.size() == static_cast<size_t>(mpi().world_size()));
  for (size_t rank = 0; rank < texts.size(); ++rank) REQUIRE(texts[rank] == std::string(rank * 3, 'x'));
}

TEST_CASE("values are gathered in rank order, and a broadcast sends rank 0's value") {
  const std::vector<double> values = all_gather(mpi(), 0.1 * mpi().rank());
  REQUIRE(values.size() == static_cast<size_t>(mpi().world_size()));
  for (size_t rank = 0; rank < values.size(); ++rank) CHECK(values[rank] == 0.1 * static_cast<double>(rank));
  CHECK(broadcast(mpi(), mpi().rank() + 17) == 17);
}

TEST_CASE("an error on the last rank is thrown on all ranks") {
  const bool last = mpi().rank() == mpi().world_size() - 1;
  REQUIRE_THROWS_AS(run_on_all_ranks(mpi(),
                                     [&] {
                                       if (last) throw UserError("the last rank's file is missing");
                                     }),
                    UserError);
}

}  // namespace mpzero::parallel
