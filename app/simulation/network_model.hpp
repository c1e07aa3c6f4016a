#pragma once

#include <cstdint>
#include <string>

namespace mpzero::plan {

// Collectives of parallel::Communicator.
enum class Collective : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll };

// Bandwidths (in one direction) and latencies of the links between GPUs. plan_machine.cpp cites the sources.
struct Links {
  double within_bytes_per_second = 0;              // per GPU, to GPUs of the same host
  double within_hop_seconds = 0;                   // latency of a ring step within a host
  double between_bytes_per_second = 0;             // per host, over all network cards, in rings and trees
  double between_all_to_all_bytes_per_second = 0;  // per host, in an all-to-all; 0: same as in rings
  double between_hop_seconds = 0;                  // latency of a step between hosts
  double start_seconds = 0;                        // fixed time per collective
  bool peer_access = false;                        // GPUs of a host access each other's memory, e.g. over NVLink
};

// Ranks of a collective: `hosts` hosts with `per_host` ranks each.
struct Group {
  int hosts = 1;
  int per_host = 1;

  int size() const { return hosts * per_host; }
};

// Returns the time, in seconds, of a collective over a full tensor of `bytes` bytes: latency plus bytes over bandwidth
// (alpha-beta model). A ring sends each byte once (twice for an all-reduce) in size - 1 steps. A tree or PAT, which
// NCCL uses for small messages, takes log2(hosts) steps at a lower bandwidth. The faster algorithm is assumed, as in
// NCCL's tuning. In an all-to-all, every rank sends to all other ranks. `rings`: number of collectives that share the
// links of a host, e.g. one per rank of a shard group.
double collective_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings = 1);

// Returns the algorithm that collective_seconds() assumes: "ring", "tree", "PAT" or "peer to peer".
std::string collective_algorithm(Collective collective, int64_t bytes, const Group& group, const Links& links,
                                 int rings = 1);

}  // namespace mpzero::plan
