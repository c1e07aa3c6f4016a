#include <cerrno>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "base/rank_failure.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

// The culprits of an error in which ranks 0 to 3 fail with this errno (0: the rank succeeds).
std::vector<int> culprits_of(const std::vector<int>& system_errors) {
  std::vector<std::vector<int>> culprits(system_errors.size());
  ThreadGroup(static_cast<int>(system_errors.size())).run([&](ProcessGroup& group) {
    const int own = system_errors[group.rank()];
    try {
      run_on_all_ranks(group, [&] {
        if (own != 0) throw Failure("cannot read", ErrorScope::kThisRank, own);
      });
    } catch (const RankFailure& error) {
      CHECK(error.scope() == ErrorScope::kAllRanks);
      culprits[group.rank()] = error.culprits();
    } catch (const Failure&) {
    }
  });
  for (const std::vector<int>& of_rank : culprits) CHECK(of_rank == culprits.front());
  return culprits.front();
}

}  // namespace

TEST_CASE("a file system error on some ranks is attributed to these ranks") {
  CHECK(culprits_of({0, 0, 0, EIO}) == std::vector{3});
  CHECK(culprits_of({0, ESTALE, EIO, 0}) == std::vector{1, 2});
}

TEST_CASE("an error that other hosts may also encounter is attributed to no rank") {
  CHECK(culprits_of({0, 0, 0, ENOSPC}).empty());
  CHECK(culprits_of({0, 0, EIO, ENOSPC}).empty());
  CHECK(culprits_of({EIO, EIO, EIO, EIO}).empty());
  // Only rank 0 may have done the work.
  CHECK(culprits_of({EIO, 0, 0, 0}).empty());
}

TEST_CASE("run_on_all_ranks returns if all ranks succeed") {
  SingleProcess group;
  bool ran = false;
  run_on_all_ranks(group, [&] { ran = true; });
  REQUIRE(ran);
}

TEST_CASE("an error on one rank is thrown on all ranks with its rank") {
  const auto errors = ThreadGroup(3).run([](ProcessGroup& group) {
    const auto fail_on_1 = [&] {
      if (group.rank() == 1) throw UserError("no such file");
    };
    CHECK_THROWS_AS(run_on_all_ranks(group, fail_on_1), UserError);
    run_on_all_ranks(group, fail_on_1);
  });
  CHECK(errors == std::vector<std::string>(3, "rank 1: no such file"));
}

TEST_CASE("an error on all ranks is thrown without a rank") {
  const auto errors = ThreadGroup(2).run([](ProcessGroup& group) {
    run_on_all_ranks(group, [] { throw Failure("disk full", ErrorScope::kThisRank, ENOSPC); });
  });
  CHECK(errors == std::vector<std::string>(2, "disk full"));
}

TEST_CASE("Damaged and the errno of a system call are preserved on every rank") {
  struct Seen {
    bool damaged = false;
    int system_error = 0;
    std::string message;
  };
  const auto run = [](const std::function<void(int rank)>& work) {
    std::vector<Seen> seen(3);
    ThreadGroup(3).run([&](ProcessGroup& group) {
      try {
        run_on_all_ranks(group, [&] { work(group.rank()); });
      } catch (const Error& error) {
        seen[group.rank()] = {dynamic_cast<const Damaged*>(&error) != nullptr, error.system_error(), error.what()};
      }
    });
    return seen;
  };
  for (const Seen& seen : run([](int rank) {
         if (rank == 1) throw Damaged("a checksum");
       })) {
    CHECK(seen.damaged);
    CHECK(seen.message == "rank 1: a checksum");
  }
  // Where one rank could not read, nobody knows that the file is damaged.
  for (const Seen& seen : run([](int rank) {
         if (rank == 0) throw Damaged("a checksum");
         if (rank == 2) throw Failure("cannot read", ErrorScope::kThisRank, EIO);
       })) {
    CHECK_FALSE(seen.damaged);
    CHECK(seen.system_error == EIO);
    CHECK(seen.message == "rank 2: cannot read");
  }
}

}  // namespace mpzero
