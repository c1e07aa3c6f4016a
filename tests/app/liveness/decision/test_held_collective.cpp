#include "app/liveness/decision/failure_verdict.hpp"
#include "app/liveness/decision/held_collective.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using parallel::ChannelRecord;
using parallel::CollectiveState;
using parallel::RankGroup;

// A channel on the CPU, where a collective that is requested is in progress: `open` is.
ChannelRecord channel(const std::string& name, const RankGroup& ranks, int64_t completed, bool open, double waited) {
  ChannelRecord record{
      .name = name, .ranks = ranks, .queued = completed + (open ? 1 : 0), .completed = completed, .last = {}};
  record.started = record.queued;
  if (open) {
    record.last.push_back({.sequence = completed + 1,
                           .operation = "reduce_scatter",
                           .bytes = 3 << 20,
                           .state = CollectiveState::kStarted,
                           .seconds = waited});
  }
  return record;
}

// Which collective of gradients a rank is in.
enum class In : uint8_t { kNone, kNode, kBetween };

// Two nodes of two ranks in a step, each of which has completed `within` sums of its node and `between` of the others.
RankRecord rank_of_two_nodes(int rank, int64_t within, int64_t between, In in, double waited) {
  const RankGroup node{.first = rank - rank % 2, .count = 2};
  const RankGroup place{.first = rank % 2, .count = 2, .stride = 2};
  RankRecord record;
  record.identity = {.rank = rank,
                     .host = "node" + std::to_string(rank / 2),
                     .machine = {},
                     .pid = 100 + rank,
                     .started = 1,
                     .port = 1,
                     .addresses = {}};
  record.status = {.step = 12,
                   .phase = RunPhase::kTraining,
                   .idle = waited,
                   .allowed = 60,
                   .channels = {channel("gradients within nodes", node, within, in == In::kNode, waited),
                                channel("gradients between nodes", place, between, in == In::kBetween, waited)},
                   .complaint = {}};
  return record;
}

}  // namespace

TEST_CASE("A group of ranks contains every so many from its first one on; none is all ranks of the run") {
  CHECK((RankGroup().is_all() && RankGroup().contains(17)));
  const RankGroup place{.first = 1, .count = 3, .stride = 4};
  for (int rank = 0; rank < 20; ++rank) CHECK(place.contains(rank) == (rank == 1 || rank == 5 || rank == 9));
}

TEST_CASE("Ranks that wait for one that waits in another group are not blamed, nor is that one") {
  // Rank 3 has not reached the sum of its node that rank 2 waits in. Ranks 0 and 1 have come further: each waits for
  // the rank at its place of the other node, and has done so for longer, since its node was the faster one.
  const std::vector<RankRecord> records = {
      rank_of_two_nodes(0, 8, 4, In::kBetween, 70), rank_of_two_nodes(1, 8, 4, In::kBetween, 70),
      rank_of_two_nodes(2, 7, 4, In::kNode, 65), rank_of_two_nodes(3, 7, 4, In::kNone, 65)};
  const Verdict verdict = find_culprits(records);
  CHECK(verdict.ranks == std::vector<int>{3});
  // The longest wait for rank 3 is that of rank 1.
  CHECK(verdict.reason ==
        "rank 3 on node1 (pid 103) has not reached reduce_scatter 5 of gradients between nodes (3.0 MiB, ranks 1, 3), "
        "in step 12, while others have waited in it for 70 s");
}

TEST_CASE("A collective between nodes that none of its ranks completes is named, and no rank is blamed") {
  // The network between ranks 0 and 2 does not move on. Ranks 1 and 3 are through theirs, and wait in their nodes.
  const std::vector<RankRecord> records = {
      rank_of_two_nodes(0, 8, 4, In::kBetween, 61), rank_of_two_nodes(1, 8, 5, In::kNode, 60),
      rank_of_two_nodes(2, 8, 4, In::kBetween, 61), rank_of_two_nodes(3, 8, 5, In::kNode, 60)};
  const Verdict verdict = find_culprits(records);
  CHECK(verdict.ranks.empty());
  CHECK(verdict.reason ==
        "rank 0 on node0 (pid 100), rank 2 on node1 (pid 102) have reached reduce_scatter 5 of gradients between nodes "
        "(3.0 MiB, ranks 0, 2), in step 12, and none of them has completed it for 61 s");
  CHECK_THAT(verdict.remedy, Catch::Contains("the network between these ranks"));
}

TEST_CASE("What others wait for a rank in is a collective that the rank takes part in") {
  std::vector<RankRecord> records = {
      rank_of_two_nodes(0, 8, 4, In::kBetween, 3), rank_of_two_nodes(1, 8, 5, In::kNode, 2),
      rank_of_two_nodes(2, 8, 4, In::kBetween, 3), rank_of_two_nodes(3, 8, 5, In::kNode, 2)};
  records[3].state = RankRecord::State::kLost;
  CHECK_THAT(find_culprits(records).reason, !Catch::Contains("while others wait"));
  records[3].state = RankRecord::State::kAnswers;
  records[2].state = RankRecord::State::kLost;
  CHECK_THAT(find_culprits(records).reason,
             Catch::Contains("rank 2 on node1 (pid 102) ended without reporting an error in step 12, while others wait "
                             "for it in reduce_scatter 5 of gradients between nodes (3.0 MiB, ranks 0, 2)"));
  // Rank 0 has gone on, rank 3 waits within the node.
  records[0].status.channels[1] = channel("gradients between nodes", {.count = 2, .stride = 2}, 5, false, 0);
  CHECK_THAT(find_culprits(records).reason,
             Catch::Contains("reduce_scatter 9 of gradients within nodes (3.0 MiB, ranks 2, 3)"));
}

TEST_CASE("Ranks of a collective are named briefly") {
  const auto text = [](const RankGroup& ranks) {
    return describe(
        HeldCollective{.late = {}, .channel = "parameters", .ranks = ranks, .sequence = 3, .collective = std::nullopt});
  };
  CHECK(text({}) == "collective 3 of parameters");
  CHECK(text({.first = 4, .count = 1}) == "collective 3 of parameters (rank 4)");
  CHECK(text({.first = 4, .count = 2}) == "collective 3 of parameters (ranks 4, 5)");
  CHECK(text({.first = 8, .count = 8}) == "collective 3 of parameters (ranks 8-15)");
  CHECK(text({.first = 3, .count = 4, .stride = 8}) == "collective 3 of parameters (ranks 3, 11, 19, 27)");
  CHECK(text({.first = 3, .count = 1000, .stride = 8}) == "collective 3 of parameters (ranks 3, 11 to 7995)");
}

}  // namespace mpzero
