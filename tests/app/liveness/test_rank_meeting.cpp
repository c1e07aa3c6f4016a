#include <nlohmann/json.hpp>
#include <set>

#include "app/liveness/rank_meeting.hpp"
#include "loopback_ranks.hpp"
#include "tests/catch.hpp"
#include "tests/io/thread_group.hpp"

namespace mpzero {
namespace {

// Tells of rank 0 that it listens where nobody does.
class Misleading final : public ProcessGroup {
 public:
  explicit Misleading(ProcessGroup& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int world_size() const override { return group_.world_size(); }
  void barrier() override { group_.barrier(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> all = group_.all_gather(text);
    if (all.front().find("\"port\"") != std::string::npos) {
      nlohmann::json words = nlohmann::json::parse(all.front());
      words["port"] = 1;
      all.front() = words.dump();
    }
    return all;
  }

 private:
  ProcessGroup& group_;
};

}  // namespace

TEST_CASE("Ranks that have met know each other, share a secret, and are connected to rank 0") {
  constexpr int kRanks = 4;
  std::vector<RankMeeting> meetings(kRanks);
  ThreadGroup group(kRanks);
  const auto errors =
      group.run([&](ProcessGroup& member) { meetings[static_cast<size_t>(member.rank())] = meet(member); });
  CHECK(errors == std::vector<std::string>(kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    CAPTURE(rank);
    const RankMeeting& one = meetings[static_cast<size_t>(rank)];
    CHECK(one.warning.empty());
    CHECK(one.roster.own == rank);
    CHECK(one.roster.size() == kRanks);
    CHECK(one.roster.token == meetings.front().roster.token);
    CHECK(one.roster.token.size() == 32);
    CHECK(one.roster.identity(rank).rank == rank);
    REQUIRE(one.listener);
    CHECK(one.roster.identity(rank).port == one.listener->port());
    CHECK(one.monitor.has_value() == (rank != 0));
  }
  RankPeers peers(std::move(*meetings.front().listener), meetings.front().roster);
  wait_until([&] { return peers.hear().empty() && peers.num_connected() == kRanks - 1; });
}

TEST_CASE("Each run has another secret") {
  std::set<std::string> tokens;
  for (int i = 0; i < 3; ++i) {
    SingleProcess alone;
    tokens.insert(meet(alone).roster.token);
  }
  CHECK(tokens.size() == 3);
}

TEST_CASE("Where one rank does not reach rank 0, all say so in the same words and watch nobody") {
  constexpr int kRanks = 3;
  std::vector<RankMeeting> meetings(kRanks);
  ThreadGroup group(kRanks);
  const auto errors = group.run([&](ProcessGroup& member) {
    Misleading misled(member);
    ProcessGroup& seen = member.rank() == 1 ? static_cast<ProcessGroup&>(misled) : member;
    meetings[static_cast<size_t>(member.rank())] = meet(seen);
  });
  CHECK(errors == std::vector<std::string>(kRanks));
  const std::string warning = meetings.front().warning;
  for (const RankMeeting& one : meetings) {
    CHECK(one.warning == warning);
    CHECK_FALSE((one.listener || one.monitor));
  }
  CHECK_THAT(warning, Catch::Contains("rank 1 on ") && Catch::Contains(" does not reach rank 0 on ") &&
                          Catch::Contains("the ranks do not watch each other"));
}

}  // namespace mpzero
