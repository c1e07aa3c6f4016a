#include <string>

#include "app/liveness/decision/silence.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using message::Reach;
using Outcome = Silence::State;
using State = RankRecord::State;

constexpr double kFresh = 7.5;
constexpr double kQuiet = 60;

// Nodes of two ranks, as rank 0 sees them: all answer.
struct Nodes {
  explicit Nodes(int count) : records(static_cast<size_t>(2 * count)), map(identify(records)) {}
  static std::vector<RankIdentity> identify(std::vector<RankRecord>& records) {
    std::vector<RankIdentity> ranks;
    for (size_t i = 0; i < records.size(); ++i) {
      const std::string node = "node" + std::to_string(i / 2);
      const int rank = static_cast<int>(i);
      ranks.push_back(
          {.rank = rank, .host = node, .machine = node, .pid = 1, .started = 1, .port = 1, .addresses = {}});
      records[i].identity = ranks.back();
      records[i].reports = true;
    }
    return ranks;
  }
  void silence_rank(int rank) {
    records[static_cast<size_t>(rank)].state = State::kSilent;
    records[static_cast<size_t>(rank)].quiet = kQuiet;
  }
  void silence_node(int node) {
    for (const int rank : map.ranks_of(node)) silence_rank(rank);
  }
  Silence judged() const {
    const std::optional<Silence> silence = judge_silence(records, map, /*own=*/0, sightings, kFresh);
    REQUIRE(silence);
    return *silence;
  }

  std::vector<RankRecord> records;
  NodeMap map;
  Sightings sightings;  // of a node and a rank
};

}  // namespace

TEST_CASE("Ranks that answer are not judged") {
  const Nodes nodes(3);
  CHECK_FALSE(judge_silence(nodes.records, nodes.map, /*own=*/0, {}, kFresh));
}

TEST_CASE("A silent rank whose node answers is to blame") {
  Nodes nodes(2);
  nodes.silence_rank(3);
  CHECK(nodes.judged().state == Outcome::kFounded);
  CHECK(nodes.judged().ranks == std::vector<int>{3});
}

TEST_CASE("Silent ranks whose machine accepts connections are to blame") {
  Nodes nodes(2);
  nodes.silence_node(1);
  nodes.sightings[{0, 2}] = Reach::kMute;
  CHECK(nodes.judged().state == Outcome::kFounded);
  CHECK(nodes.judged().ranks == std::vector<int>{2, 3});
}

TEST_CASE("A node that fewer reach than do not is to blame, if most nodes answer") {
  Nodes nodes(5);
  nodes.silence_node(1);
  nodes.sightings[{2, 2}] = Reach::kUnreachable;
  SECTION("no node reaches it") {}
  SECTION("one node reaches it") { nodes.sightings[{3, 2}] = Reach::kAnswers; }
  const Silence silence = nodes.judged();
  CHECK(silence.state == Outcome::kFounded);
  CHECK(silence.ranks == std::vector<int>{2, 3});
  CHECK(silence.there == std::vector<std::string>{"node1"});
  CHECK(silence.here == std::vector<std::string>{"node0", "node2", "node3", "node4"});
  CHECK(silence.cut == std::vector<std::string>{"node2"});
  CHECK(silence.reached.empty() == (nodes.sightings.size() == 1));
}

TEST_CASE("A node that as many reach as do not blames none") {
  Nodes nodes(4);
  nodes.silence_node(1);
  nodes.sightings[{2, 2}] = Reach::kAnswers;
  CHECK(nodes.judged().state == Outcome::kOpen);
  CHECK(nodes.judged().ranks.empty());
}

TEST_CASE("Nodes whose ranks have ended count as nodes of the run") {
  Nodes nodes(6);
  nodes.silence_node(1);
  nodes.sightings[{2, 2}] = Reach::kUnreachable;
  const auto end = GENERATE(State::kLost, State::kEnded);
  for (const int node : {3, 4, 5}) {
    for (const int rank : nodes.map.ranks_of(node)) nodes.records[static_cast<size_t>(rank)].state = end;
  }
  // Two of six answer.
  CHECK(nodes.judged().state == Outcome::kOpen);
}

TEST_CASE("Half of the nodes blames none, and fewer blame themselves") {
  Nodes nodes(4);
  nodes.silence_node(2);
  nodes.silence_node(3);
  CHECK(nodes.judged().state == Outcome::kOpen);
  nodes.silence_node(1);
  CHECK(nodes.judged().state == Outcome::kCutOff);
  CHECK(nodes.judged().ranks == std::vector<int>{0, 1});
}

TEST_CASE("A rank that abandoned this one shows that this side was cut off") {
  Nodes nodes(4);
  nodes.silence_rank(1);
  nodes.records[1].abandoned = true;
  CHECK(nodes.judged().state == Outcome::kCutOff);
  CHECK(nodes.judged().ranks == std::vector<int>{0});
}

TEST_CASE("A node that never reported to a new monitor is silent, too, if no one reaches it") {
  Nodes nodes(7);
  nodes.silence_node(1);
  nodes.sightings[{3, 2}] = Reach::kUnreachable;
  for (const int rank : nodes.map.ranks_of(2)) {
    nodes.records[static_cast<size_t>(rank)].reports = false;
  }
  const std::vector<int> both = {2, 3, 4, 5};
  const std::vector<int> known = {2, 3};
  CHECK(nodes.judged().ranks == known);
  nodes.sightings[{3, 4}] = Reach::kUnreachable;
  CHECK(nodes.judged().ranks == both);
  SECTION("one node reaches it") { nodes.sightings[{4, 4}] = Reach::kAnswers; }
  SECTION("its machine accepts connections of this node") { nodes.sightings[{0, 4}] = Reach::kMute; }
  SECTION("it reports after all") { nodes.records[4].reports = true; }
  CHECK(nodes.judged().ranks == known);
}

TEST_CASE("One or two ranks of each node that does not answer are probed, by one of each node that does") {
  Nodes nodes(5);
  nodes.silence_node(3);
  nodes.records[2].quiet = kFresh + 1;
  nodes.records[3].quiet = kFresh + 1;
  CHECK(ranks_to_probe(nodes.records, nodes.map, /*own=*/0, kFresh) == std::vector<int>{6, 7, 2});
  CHECK(witnesses(nodes.records, nodes.map, /*own=*/0, kFresh) == std::vector<int>{4, 8});
}

TEST_CASE("Of many nodes some are asked") {
  Nodes nodes(60);
  for (int node = 1; node < 30; ++node) nodes.silence_node(node);
  CHECK(ranks_to_probe(nodes.records, nodes.map, /*own=*/0, kFresh).size() == 2 * 16);
  CHECK(witnesses(nodes.records, nodes.map, /*own=*/0, kFresh).size() == 8);
}

}  // namespace mpzero
