#include <cerrno>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "tests/catch.hpp"
#include "tests/base/thread_group.hpp"

namespace mpzero {
namespace {

// Answers as if the other ranks had sent `others`.
class ScriptedGroup final : public ProcessGroup {
 public:
  ScriptedGroup(int rank, std::vector<std::string> others) : rank_(rank), others_(std::move(others)) {}
  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(others_.size()); }
  void barrier() override {}
  std::vector<std::string> all_gather(const std::string& text) override {
    others_[rank_] = text;
    return others_;
  }

 private:
  int rank_;
  std::vector<std::string> others_;
};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("run_on_all_ranks returns where every rank succeeds") {
  SingleProcess group;
  bool ran = false;
  run_on_all_ranks(group, [&] { ran = true; });
  REQUIRE(ran);
}

TEST_CASE("an error of one rank reaches the others with its rank") {
  ScriptedGroup group(0, {"", "u0 no such file", "o"});
  REQUIRE_THROWS_AS(run_on_all_ranks(group, [] {}), UserError);
  REQUIRE(message_of([&] { run_on_all_ranks(group, [] {}); }) == "rank 1: no such file");
}

TEST_CASE("an error that all ranks share is told without a rank") {
  ScriptedGroup group(1, {"f0 disk full", ""});
  const auto fail = [] { throw Failure("disk full"); };
  REQUIRE_THROWS_AS(run_on_all_ranks(group, fail), Failure);
  REQUIRE(message_of([&] { run_on_all_ranks(group, fail); }) == "disk full");
}

TEST_CASE("damage and the errno of a system call stay what they are on every rank") {
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
