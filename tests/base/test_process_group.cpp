#include "base/error.hpp"
#include "base/process_group.hpp"
#include "tests/catch.hpp"

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
  ScriptedGroup group(0, {"", "uno such file", "o"});
  REQUIRE_THROWS_AS(run_on_all_ranks(group, [] {}), UserError);
  REQUIRE(message_of([&] { run_on_all_ranks(group, [] {}); }) == "rank 1: no such file");
}

TEST_CASE("an error that all ranks share is told without a rank") {
  ScriptedGroup group(1, {"fdisk full", ""});
  const auto fail = [] { throw Failure("disk full"); };
  REQUIRE_THROWS_AS(run_on_all_ranks(group, fail), Failure);
  REQUIRE(message_of([&] { run_on_all_ranks(group, fail); }) == "disk full");
}

}  // namespace mpzero
