#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "app/liveness/rank_meeting.hpp"
#include "loopback_ranks.hpp"
#include "tests/catch.hpp"
#include "tests/io/thread_group.hpp"

namespace mpzero {
namespace {

// What a group does with the port that rank 0 tells of, before its ranks hear of it.
class Changed : public ProcessGroup {
 public:
  Changed(ProcessGroup& group, std::function<int(int)> change) : group_(group), change_(std::move(change)) {}
  int rank() const override { return group_.rank(); }
  int world_size() const override { return group_.world_size(); }
  void barrier() override { group_.barrier(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> all = group_.all_gather(text);
    if (all.front().find("\"port\"") != std::string::npos) {
      nlohmann::json words = nlohmann::json::parse(all.front());
      words["port"] = change_(words.at("port").get<int>());
      all.front() = words.dump();
    }
    return all;
  }

 private:
  ProcessGroup& group_;
  std::function<int(int)> change_;
};

// Meets as ranks of which `which` is told of another port.
std::vector<RankMeeting> meet_all(int count, int which, const std::function<int(int)>& change) {
  std::vector<RankMeeting> meetings(static_cast<size_t>(count));
  ThreadGroup group(count);
  const auto errors = group.run([&](ProcessGroup& member) {
    Changed changed(member, change);
    ProcessGroup& seen = member.rank() == which ? static_cast<ProcessGroup&>(changed) : member;
    meetings[static_cast<size_t>(member.rank())] = meet(seen);
  });
  CHECK(errors == std::vector<std::string>(static_cast<size_t>(count)));
  return meetings;
}

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
    CHECK(one.roster.secret == meetings.front().roster.secret);
    CHECK(one.roster.secret != HashBytes{});
    CHECK(one.roster.identity(rank).rank == rank);
    REQUIRE(one.peers);
    CHECK(one.roster.identity(rank).port == one.peers->port());
    REQUIRE(one.monitor.has_value() == (rank != 0));
    if (one.monitor) CHECK((one.monitor->is_identified() && one.monitor->rank() == 0));
  }
  RankPeers& peers = *meetings.front().peers;
  wait_until([&] { return peers.hear(kNow).empty() && peers.num_connected() == kRanks - 1; });
  CHECK(peers.num_unidentified() == 0);
}

TEST_CASE("Each run has another secret") {
  std::set<HashBytes> secrets;
  for (int i = 0; i < 3; ++i) {
    SingleProcess alone;
    secrets.insert(meet(alone).roster.secret);
  }
  CHECK(secrets.size() == 3);
}

TEST_CASE("Where one rank does not reach rank 0, all say so in the same words and watch nobody") {
  const std::vector<RankMeeting> meetings = meet_all(3, 1, [](int) { return 1; });
  const std::string warning = meetings.front().warning;
  for (const RankMeeting& one : meetings) {
    CHECK(one.warning == warning);
    CHECK_FALSE((one.peers || one.monitor));
  }
  CHECK_THAT(warning, Catch::Contains("rank 1 on ") && Catch::Contains(" does not reach rank 0 on ") &&
                          Catch::Contains("the ranks do not watch each other") &&
                          Catch::Contains("because nothing answers there; let the nodes"));
}

TEST_CASE("What does not know the secret is not taken for rank 0") {
  Listener listener({kLoopback});
  std::jthread stranger([&](const std::stop_token& stop) {
    std::vector<LineConnection> kept;
    while (!stop.stop_requested()) {
      if (!is_readable(listener.descriptors().front(), 10)) continue;
      kept.push_back(listener.accept().connection.value());
      kept.back().send("220 mail.example.com");
    }
  });
  const std::vector<RankMeeting> meetings = meet_all(2, 1, [&](int) { return listener.port(); });
  for (const RankMeeting& one : meetings) {
    CHECK_FALSE((one.peers || one.monitor));
    CHECK_THAT(one.warning, Catch::Contains("rank 1 on ") && Catch::Contains(" does not reach rank 0 on ") &&
                                Catch::Contains("because what it says is nothing that ranks say"));
  }
}

TEST_CASE("Ranks meet while strangers flood rank 0's port") {
  std::vector<LineConnection> flood;
  const std::vector<RankMeeting> meetings = meet_all(3, 1, [&](int port) {
    for (int i = 0; i < 400; ++i) {
      auto one = connect_to(kLoopback, port, std::chrono::milliseconds(5000));
      if (one) flood.push_back(std::move(*one));
    }
    return port;
  });
  CHECK(flood.size() == 400);
  for (const RankMeeting& one : meetings) {
    CHECK(one.warning.empty());
    CHECK(one.monitor.has_value() == (one.roster.own != 0));
  }
  CHECK(meetings.front().peers->num_introduced() == 2);
  CHECK(meetings.front().peers->num_unidentified() <= 3 + 16);
}

}  // namespace mpzero
