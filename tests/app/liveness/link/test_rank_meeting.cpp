#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "app/liveness/link/rank_meeting.hpp"
#include "tests/app/liveness/link/loopback_ranks.hpp"
#include "tests/app/liveness/link/own_network.hpp"
#include "tests/base/thread_group.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Change = std::function<void(nlohmann::json& identity)>;

// What a group does to rank 0's introduction before its ranks receive it.
class Changed : public ProcessGroup {
 public:
  Changed(ProcessGroup& group, Change change) : group_(group), change_(std::move(change)) {}
  int rank() const override { return group_.rank(); }
  int world_size() const override { return group_.world_size(); }
  void barrier() override { group_.barrier(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> all = group_.all_gather(text);
    if (all.front().find("\"port\"") != std::string::npos) {
      nlohmann::json identity = nlohmann::json::parse(all.front());
      change_(identity);
      all.front() = identity.dump();
    }
    return all;
  }

 private:
  ProcessGroup& group_;
  Change change_;
};

constexpr int kAllRanks = -1;

// Lets ranks meet, of which `which` receives a changed introduction of rank 0.
std::vector<RankMeeting> meet_all(int count, int which, const Change& change) {
  std::vector<RankMeeting> meetings(static_cast<size_t>(count));
  ThreadGroup group(count);
  const auto errors = group.run([&](ProcessGroup& member) {
    Changed changed(member, change);
    const bool is_affected = which == kAllRanks || member.rank() == which;
    ProcessGroup& seen = is_affected ? static_cast<ProcessGroup&>(changed) : member;
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
    CHECK(one.roster.started == meetings.front().roster.started);
    CHECK(one.roster.started > 0);
    CHECK(one.roster.identity(rank).rank == rank);
    REQUIRE(one.peers);
    CHECK(one.roster.identity(rank).port == one.peers->port());
    REQUIRE(one.monitor.has_value() == (rank != 0));
    if (one.monitor) CHECK((one.monitor->is_identified() && one.monitor->rank() == 0));
  }
  CHECK(meetings.front().peers->num_connected() == kRanks - 1);
  CHECK(meetings.front().peers->num_unidentified() == 0);
}

namespace {

// A rank that stalls once it has the others' identities and the run's secret: until `wait` returns.
class Stalling final : public ProcessGroup {
 public:
  Stalling(ProcessGroup& group, std::function<void()> wait) : group_(group), wait_(std::move(wait)) {}
  int rank() const override { return group_.rank(); }
  int world_size() const override { return group_.world_size(); }
  void barrier() override { group_.barrier(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> all = group_.all_gather(text);
    if (++num_gathered_ == 2) wait_();
    return all;
  }

 private:
  ProcessGroup& group_;
  std::function<void()> wait_;
  int num_gathered_ = 0;
};

// How often Linux found no room for a connection in the queue of a listener, in this thread's network.
int64_t num_overflows() {
  std::ifstream file("/proc/thread-self/net/netstat");
  std::string names;
  std::string values;
  while (std::getline(file, names) && std::getline(file, values)) {
    std::istringstream name_stream(names);
    std::istringstream value_stream(values);
    std::string name;
    std::string value;
    while (name_stream >> name && value_stream >> value) {
      if (name == "ListenOverflows") return std::stoll(value);
    }
  }
  FAIL("/proc/thread-self/net/netstat has no ListenOverflows");
  return 0;
}

}  // namespace

TEST_CASE("Ranks wait for a rank 0 that stalls while they meet, and are watched") {
  const MeetingLimits limits{.connect = std::chrono::milliseconds(20), .stall = std::chrono::seconds(30)};
  std::vector<RankMeeting> meetings(3);
  ThreadGroup group(3);
  group.run([&](ProcessGroup& member) {
    // The limit passes several times.
    Stalling stalling(member, [&] { std::this_thread::sleep_until(LivenessClock::now() + 10 * limits.connect); });
    const bool stalls = member.rank() == 0;
    meetings[static_cast<size_t>(member.rank())] = meet(stalls ? static_cast<ProcessGroup&>(stalling) : member, limits);
  });
  for (const RankMeeting& one : meetings) CHECK(one.warning.empty());
  REQUIRE(meetings.front().peers);
  CHECK(meetings.front().peers->num_connected() == 2);
}

TEST_CASE("Ranks wait for a rank 0 that stalls also once the queue of its connections is full", "[own_network]") {
  const MeetingLimits limits{.connect = std::chrono::milliseconds(100), .stall = std::chrono::seconds(60)};
  std::vector<RankMeeting> meetings(2);
  int64_t overflows = 0;
  // One address, at which two connections wait.
  const char* setup = "ip link set lo up && ip -6 addr flush dev lo && echo 1 > /proc/sys/net/core/somaxconn";
  const bool has_run = in_own_network(setup, [&] {
    ThreadGroup group(2);
    group.run([&](ProcessGroup& member) {
      // Rank 1 has connected again after it found no room. The limit ends the wait where it does not.
      Stalling stalling(member, [&] {
        const LivenessTime start = LivenessClock::now();
        while ((overflows = num_overflows()) < 3 && LivenessClock::now() - start < std::chrono::seconds(20)) {
          std::this_thread::yield();
        }
      });
      const bool stalls = member.rank() == 0;
      meetings[static_cast<size_t>(member.rank())] =
          meet(stalls ? static_cast<ProcessGroup&>(stalling) : member, limits);
    });
  });
  if (!has_run) return;
  CHECK(overflows >= 3);
  for (const RankMeeting& one : meetings) CHECK(one.warning.empty());
  REQUIRE(meetings.front().peers);
  CHECK(meetings.front().peers->num_connected() == 1);
}

TEST_CASE("Each run has another secret") {
  std::set<HashBytes> secrets;
  for (int i = 0; i < 3; ++i) {
    SingleProcess alone;
    secrets.insert(meet(alone).roster.secret);
  }
  CHECK(secrets.size() == 3);
}

TEST_CASE("If one rank cannot reach rank 0, all ranks report the same sentence and none is watched") {
  const std::vector<RankMeeting> meetings = meet_all(3, 1, [](auto& identity) { identity["port"] = 1; });
  const std::string warning = meetings.front().warning;
  for (const RankMeeting& one : meetings) {
    CHECK(one.warning == warning);
    CHECK_FALSE((one.peers || one.monitor));
  }
  CHECK_THAT(warning, Catch::Contains("rank 1 on ") && Catch::Contains(" cannot reach rank 0 on ") &&
                          Catch::Contains("the ranks do not watch each other") &&
                          Catch::Contains("because nothing answers there; allow the nodes"));
}

TEST_CASE("If rank 0 has no address for other machines, all ranks report the same sentence and none is watched") {
  const int which = GENERATE(1, kAllRanks);
  const std::vector<RankMeeting> meetings = meet_all(3, which, [](auto& identity) {
    identity["machine"] = "another-machine";
    identity["addresses"] = nlohmann::json::array();
  });
  const std::string warning = meetings.front().warning;
  for (const RankMeeting& one : meetings) {
    CHECK(one.warning == warning);
    CHECK_FALSE((one.peers || one.monitor));
  }
  CHECK_THAT(warning, Catch::StartsWith("the ranks do not watch each other") && Catch::Contains("rank 1 on ") &&
                          Catch::Contains(" cannot reach rank 0 on ") &&
                          Catch::Contains("because rank 0 has no address that another machine can reach; allow"));
}

TEST_CASE("Ranks of hosts that have only IPv6 addresses meet", "[own_network]") {
  const bool same_machine = GENERATE(true, false);
  std::vector<RankMeeting> meetings;
  const char* setup =
      "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && ip link add one type veth peer name other && "
      "ip addr add fd00::1/64 dev one nodad && ip link set one up && ip link set other up";
  const bool has_run = in_own_network(setup, [&] {
    meetings = meet_all(3, kAllRanks, [&](auto& identity) {
      if (!same_machine) identity["machine"] = "another-machine";
    });
  });
  if (!has_run) return;
  for (const RankMeeting& one : meetings) {
    CHECK(one.warning.empty());
    CHECK(one.roster.identity(0).addresses == std::vector<std::string>{"fd00::1"});
  }
  REQUIRE(meetings.front().peers);
  CHECK(meetings.front().peers->num_connected() == 2);
}

TEST_CASE("A process that does not know the secret is not taken for rank 0") {
  Listener listener({kLoopback});
  std::jthread stranger([&](const std::stop_token& stop) {
    std::vector<LineConnection> kept;
    while (!stop.stop_requested()) {
      if (!is_readable(listener.descriptors().front(), 10)) continue;
      kept.push_back(listener.accept().connection.value());
      kept.back().send("220 mail.example.com");
    }
  });
  const std::vector<RankMeeting> meetings = meet_all(2, 1, [&](auto& identity) { identity["port"] = listener.port(); });
  for (const RankMeeting& one : meetings) {
    CHECK_FALSE((one.peers || one.monitor));
    CHECK_THAT(one.warning, Catch::Contains("rank 1 on ") && Catch::Contains(" cannot reach rank 0 on ") &&
                                Catch::Contains("because it does not speak the protocol of the ranks"));
  }
}

TEST_CASE("Ranks meet while strangers flood rank 0's port") {
  std::vector<LineConnection> flood;
  const std::vector<RankMeeting> meetings = meet_all(3, 1, [&](const auto& identity) {
    for (int i = 0; i < 400; ++i) {
      auto one = connect_to(kLoopback, identity.at("port").template get<int>(), std::chrono::milliseconds(5000));
      if (one) flood.push_back(std::move(*one));
    }
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
