#include "app/simulation/network_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mpzero::plan {
namespace {

double steps_of_a_tree(int hosts) { return std::bit_width(static_cast<unsigned>(hosts - 1)); }

// Assumed number of concurrent peers in an all-to-all. NCCL has up to 64 channels, and mpzero assigns 8 channels to
// each peer on a different host.
constexpr int kPeersAtATime = 8;

double all_to_all_seconds(int64_t bytes, const Group& group, const Links& links, int rings) {
  const double to_each = static_cast<double>(bytes) / group.size();
  const double within = group.per_host > 1 ? to_each * (group.per_host - 1) / links.within_bytes_per_second : 0;
  const double leaving = to_each * (group.size() - group.per_host) * group.per_host * rings;
  const double rate = links.between_all_to_all_bytes_per_second > 0 ? links.between_all_to_all_bytes_per_second
                                                                    : links.between_bytes_per_second;
  const double between = group.hosts > 1 ? leaving / rate : 0;
  const double rounds = std::ceil((group.size() - 1.0) / kPeersAtATime);
  return std::max(within, between) + rounds * (group.hosts > 1 ? links.between_hop_seconds : links.within_hop_seconds);
}

// Returns the seconds for all bytes to cross the slowest link.
double transfer_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const double sent = rounds * static_cast<double>(bytes) * (group.size() - 1) / group.size();
  double seconds = group.per_host > 1 ? sent / links.within_bytes_per_second : 0;
  if (group.hosts > 1) seconds = std::max(seconds, sent * rings / links.between_bytes_per_second);
  return seconds;
}

// Minimum time of a ring step if the ring spans hosts, even for steps within a host. Three times getNetOverhead() of
// NCCL 2.28.9 (graph/tuning.cc) for AMD processors; Intel processors have half the value.
constexpr double kStepOverNetwork = 6e-6;

double ring_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const double between = group.hosts - 1;
  const double within =
      group.hosts > 1 ? std::max(links.within_hop_seconds, kStepOverNetwork) : links.within_hop_seconds;
  const double steps = links.between_hop_seconds * between + within * (group.size() - 1 - between);
  return rounds * steps + transfer_seconds(collective, bytes, group, links, rings);
}

// Latency per step of a pipelined tree, and bandwidth of a tree relative to a ring. Fitted to all-reduces on 4 and 16
// p5.48xlarge (docs/plan.md). Predictions for 8 and 32 hosts agree within 20%.
constexpr double kTreeWait = 50e-6, kOfTree = 0.65;

double tree_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const double steps = (links.between_hop_seconds + kTreeWait) * steps_of_a_tree(group.hosts) +
                       links.within_hop_seconds * (group.per_host - 1);
  return rounds * steps + transfer_seconds(collective, bytes, group, links, rings) / kOfTree;
}

// NCCL supports trees for all-reduce and, since 2.23, PAT for all-gather and reduce-scatter with one rank per host.
bool tree_is_faster(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  const bool has_one = group.hosts > 1 && (collective == Collective::kAllReduce || group.per_host == 1);
  return has_one &&
         tree_seconds(collective, bytes, group, links, rings) < ring_seconds(collective, bytes, group, links, rings);
}

}  // namespace

double collective_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  if (group.size() == 1) return 0;
  if (collective == Collective::kAllToAll) return links.start_seconds + all_to_all_seconds(bytes, group, links, rings);
  return links.start_seconds + (tree_is_faster(collective, bytes, group, links, rings)
                                    ? tree_seconds(collective, bytes, group, links, rings)
                                    : ring_seconds(collective, bytes, group, links, rings));
}

std::string collective_algorithm(Collective collective, int64_t bytes, const Group& group, const Links& links,
                                 int rings) {
  if (collective == Collective::kAllToAll) return "peer to peer";
  if (!tree_is_faster(collective, bytes, group, links, rings)) return "ring";
  return collective == Collective::kAllReduce ? "tree" : "PAT";
}

}  // namespace mpzero::plan
