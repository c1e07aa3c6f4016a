#include "app/plan/simulation/network_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mpzero::plan {
namespace {

double steps_of_a_tree(int hosts) { return std::bit_width(static_cast<unsigned>(hosts - 1)); }

// Seconds in which all bytes pass the narrowest place.
double transfer_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const double sent = rounds * static_cast<double>(bytes) * (group.size() - 1) / group.size();
  double seconds = group.per_host > 1 ? sent / links.within_bytes_per_second : 0;
  if (group.hosts > 1) seconds = std::max(seconds, sent * rings / links.between_bytes_per_second);
  return seconds;
}

double ring_latency(Collective collective, const Group& group, const Links& links) {
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  const double between = group.hosts > 1 ? group.hosts : 0;
  return rounds * (links.between_hop_seconds * between + links.within_hop_seconds * (group.size() - 1 - between));
}

double tree_latency(Collective collective, const Group& group, const Links& links) {
  const double rounds = collective == Collective::kAllReduce ? 2 : 1;
  return rounds *
         (links.between_hop_seconds * steps_of_a_tree(group.hosts) + links.within_hop_seconds * (group.per_host - 1));
}

// NCCL has trees for all-reduces, and since 2.23 PAT for gathers and scatters with one rank a host.
bool has_a_tree(Collective collective, const Group& group) {
  return group.hosts > 1 && (collective == Collective::kAllReduce || group.per_host == 1);
}

}  // namespace

double collective_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings) {
  if (group.size() == 1) return 0;
  const double transfer = transfer_seconds(collective, bytes, group, links, rings);
  double latency = std::max(0.0, ring_latency(collective, group, links));
  if (has_a_tree(collective, group)) latency = std::min(latency, tree_latency(collective, group, links));
  return links.start_seconds + latency + transfer;
}

std::string collective_algorithm(Collective collective, int64_t, const Group& group, const Links& links, int) {
  if (!has_a_tree(collective, group) ||
      ring_latency(collective, group, links) <= tree_latency(collective, group, links)) {
    return "ring";
  }
  return collective == Collective::kAllReduce ? "tree" : "PAT";
}

}  // namespace mpzero::plan
