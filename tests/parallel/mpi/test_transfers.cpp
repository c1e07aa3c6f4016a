#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "parallel/mpi/mpi_check.hpp"
#include "parallel/mpi/transfers.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {
namespace {

// Around the ranks: to the next one, from the one before.
struct Ring {
  int rank = mpi().rank();
  int to = (rank + 1) % mpi().world_size();
  int from = (rank + mpi().world_size() - 1) % mpi().world_size();
};

void finish(Transfers& transfers) {
  while (transfers.advance() != HostTask::Progress::kDone) {
  }
}

}  // namespace

TEST_CASE("messages arrive in place, and their completion is reported in order, for any number in flight") {
  const Ring ring;
  constexpr int64_t kCount = 40;
  for (const int64_t under_way : {1, 3, 64}) {
    std::vector<int> sent(kCount), received(kCount, -1), told;
    std::iota(sent.begin(), sent.end(), 1000 * ring.rank);
    Transfers transfers(mpi().group().handle, {.count = kCount,
                                               .most_under_way = under_way,
                                               .transfer =
                                                   [&](int64_t i) {
                                                     const auto place = static_cast<size_t>(i);
                                                     return Transfer{.to = ring.to,
                                                                     .sent = &sent[place],
                                                                     .sent_bytes = sizeof(int),
                                                                     .from = ring.from,
                                                                     .received = &received[place],
                                                                     .received_bytes = sizeof(int)};
                                                   },
                                               .done = [&](int64_t i) { told.push_back(static_cast<int>(i)); }});
    finish(transfers);
    std::vector<int> expected(kCount);
    std::iota(expected.begin(), expected.end(), 1000 * ring.from);
    CHECK(received == expected);
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(told == expected);
  }
}

TEST_CASE("a transfer begins only when permitted") {
  const Ring ring;
  // What was received is passed on, so that after one round everybody has its own again.
  const int ranks = mpi().world_size();
  std::vector<int> values(static_cast<size_t>(ranks) + 1, -1);
  values[0] = 7 + ring.rank;
  Transfers transfers(mpi().group().handle, {.count = ranks,
                                             .most_under_way = ranks,
                                             .transfer =
                                                 [&](int64_t i) {
                                                   const auto place = static_cast<size_t>(i);
                                                   return Transfer{.to = ring.to,
                                                                   .sent = &values[place],
                                                                   .sent_bytes = sizeof(int),
                                                                   .from = ring.from,
                                                                   .received = &values[place + 1],
                                                                   .received_bytes = sizeof(int)};
                                                 },
                                             .may_begin = [](int64_t i, int64_t done) { return i - 1 < done; }});
  finish(transfers);
  CHECK(values.back() == 7 + ring.rank);
}

TEST_CASE("messages of 0 bytes are neither sent nor received") {
  const Ring ring;
  int value = 5;
  int calls = 0;
  Transfers transfers(mpi().group().handle,
                      {.count = 3,
                       .transfer = [&](int64_t) { return Transfer{.to = ring.to, .sent = &value, .from = ring.from}; },
                       .done = [&](int64_t) { ++calls; }});
  CHECK(transfers.advance() == HostTask::Progress::kDone);
  CHECK(calls == 3);
}

TEST_CASE("a message that is too long and a rank that does not exist are refused") {
  const Ring ring;
  std::vector<char> memory(Transfers::kMostBytes + 1);
  const auto send = [&](int to, int64_t bytes) {
    Transfers transfers(mpi().group().handle, {.count = 1, .transfer = [&](int64_t) {
                                                 return Transfer{.to = to, .sent = memory.data(), .sent_bytes = bytes};
                                               }});
    transfers.advance();
  };
  CHECK_THROWS_AS(send(ring.to, Transfers::kMostBytes + 1), Failure);
  CHECK_THROWS_WITH(send(mpi().world_size() + 3, 1), Catch::Contains("MPI_Isend"));
}

TEST_CASE("memory that MPI may still write stays allocated if transfers end early") {
  const Ring ring;
  const auto memory = std::make_shared<int>(0);
  {
    // Nobody sends it.
    Transfers transfers(
        mpi().group().handle,
        {.count = 1,
         .transfer =
             [&](int64_t) { return Transfer{.from = ring.from, .received = memory.get(), .received_bytes = 4}; },
         .memory = memory});
    CHECK(transfers.advance() != HostTask::Progress::kDone);
  }
  CHECK(memory.use_count() == 2);
  mpi().barrier();
  // And still does: the next message from there arrives in it.
  const int value = 11;
  MPI_Send(&value, sizeof(value), MPI_BYTE, ring.to, /*tag=*/1, mpi().group().handle);
  mpi().barrier();
}

}  // namespace mpzero::parallel
