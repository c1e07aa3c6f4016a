#include "base/collectives.hpp"
#include "parallel/mpi/late_sum.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

TEST_CASE("a late sum is the sum of the previous round, on every rank") {
  const int size = mpi().world_size();
  LateSum sum;
  CHECK(sum.next(mpi().rank()) == 0);
  CHECK(sum.next(1) == size * (size - 1) / 2);
  CHECK(sum.next(mpi().rank() == size - 1 ? 7 : 0) == size);
  CHECK(sum.next(0) == 7);
  CHECK(sum.next(0) == 0);
}

TEST_CASE("a late sum whose last result is not read leaves no request pending") {
  for (int i = 0; i < 3; ++i) {
    LateSum sum;
    CHECK(sum.next(5) == 0);
  }
  LateSum sum;
  CHECK(sum.next(0) == 0);
  CHECK(sum.next(0) == 0);
}

TEST_CASE("calls of MPI's control plane are recorded on request") {
  FlightRecorder recorder;
  FlightRecorder::Channel& channel = recorder.channel("control", FlightRecorder::Shows::kNothing);
  mpi().record_in(&channel);
  mpi().barrier();
  mpi().all_gather("four");
  CHECK(max(mpi(), mpi().rank()) == mpi().world_size() - 1);
  mpi().record_in(nullptr);
  mpi().barrier();
  const ChannelRecord record = recorder.records(8).front();
  CHECK(record.completed == 3);
  REQUIRE(record.last.size() == 3);
  CHECK(record.last[0].operation == "barrier");
  CHECK(record.last[1].operation == "all_gather");
  CHECK(record.last[1].bytes == 4);
  CHECK(record.last[2].operation == "all_gather");
  CHECK(record.last[2].bytes == sizeof(int));
}

}  // namespace mpzero::parallel
