#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/liveness/decision/rank_record.hpp"

// Collectives that do not complete. Ranks meet in them by group: all of the run or, with two levels, those of a node,
// or those at one place of all nodes.
namespace mpzero {

// How far a rank is in a channel: requested, started on its device, completed.
using ChannelProgress = int64_t parallel::ChannelRecord::*;

// A collective that a group of ranks has not completed.
struct HeldCollective {
  std::vector<int> late;  // those that have not come as far as the others of the group
  std::string channel;
  parallel::RankGroup ranks;
  int64_t sequence = 0;
  std::optional<parallel::CollectiveRecord> collective;  // as reported by a rank that waits in it
  double waited = -1;                                    // seconds, as reported by that rank
};

// Of the collectives that some of `among` have reached and others have not, by one measure, the one that ranks have
// waited in for the longest. A rank that is itself in a collective of another group is late because of that one: it is
// not named. `records`: by rank.
std::optional<HeldCollective> find_lag(const std::vector<RankRecord>& records, const std::set<int>& among,
                                       ChannelProgress measure);
// Of the collectives that all ranks of a group have requested and none has completed, the one that has been open for
// the longest; only of groups that are a part of the run. `late`: the group's ranks.
std::optional<HeldCollective> find_unfinished(const std::vector<RankRecord>& records, const std::set<int>& among);
// What others wait in while these ranks are gone: of the collectives that these ranks take part in, the one that has
// been open for the longest. (The last status of the ranks that are gone may be a second old.)
std::optional<HeldCollective> find_awaited(const std::vector<RankRecord>& records, const std::vector<int>& gone);

// "all_gather 12 of parameters between nodes (1.5 MiB, ranks 1, 3)"
std::string describe(const HeldCollective& held);

}  // namespace mpzero
