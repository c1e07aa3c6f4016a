#include <string>

#include "app/liveness/decision/rank_watch.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using State = RankRecord::State;

// Connections of which nothing comes.
class NoWires final : public WatchWires {
 public:
  void to_monitor(const message::Any&) override {}
  void to_reporters(const message::Any&) override {}
  void dial(int, LivenessClock::duration) override {}
  void hang_up(int) override {}
  void report_to(int) override {}
  void leave_monitor() override {}
  void abandon_monitor() override {}
};

std::vector<RankIdentity> one_per_node(int count) {
  std::vector<RankIdentity> ranks;
  for (int rank = 0; rank < count; ++rank) {
    const std::string node = "node" + std::to_string(rank);
    ranks.push_back({.rank = rank, .host = node, .machine = node, .pid = 1, .started = 1, .port = 1, .addresses = {}});
  }
  return ranks;
}

}  // namespace

TEST_CASE("A candidate whose connection the network breaks is silent, and one that closes it has ended") {
  const bool by_network = GENERATE(true, false);
  const LivenessTime now = LivenessClock::now();
  NoWires wires;
  RankWatch watch(one_per_node(4), /*own=*/3, /*silent_after=*/60, wires, now);
  watch.lose_monitor(/*by_network=*/false, now);
  // Rank 2 answers, and would be chosen if rank 1 did not.
  watch.dialed(2, message::Reach::kAnswers, now);
  watch.lose_dialed(2, by_network, now);
  watch.dialed(1, message::Reach::kRefused, now);
  REQUIRE(watch.monitors());
  CHECK(watch.records().records()[2].state == (by_network ? State::kSilent : State::kEnded));
}

}  // namespace mpzero
