#pragma once

#include <cstdint>
#include <string>

namespace mpzero::plan {

// The collectives of Communicator.
enum class Collective : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll };

// Links between GPUs, per GPU or per host and direction. Sources: the constants in plan_machine.cpp.
struct Links {
  double within_bytes_per_second = 0;              // sent by one GPU to others of its host in a collective
  double within_hop_seconds = 0;                   // one step of a ring within a host
  double between_bytes_per_second = 0;             // sent by one host, over all its cards, in rings and trees
  double between_all_to_all_bytes_per_second = 0;  // the same in an all-to-all; 0: as in rings
  double between_hop_seconds = 0;                  // one step from host to host
  double start_seconds = 0;                        // per collective, independent of its size
  bool peer_access = false;                        // the GPUs of a host write into each other's memory, as over NVLink
};

// Ranks of a collective: `hosts` hosts with `per_host` ranks each.
struct Group {
  int hosts = 1;
  int per_host = 1;

  int size() const { return hosts * per_host; }
};

// Seconds of a collective over a full tensor of `bytes`: latency plus bytes over bandwidth (alpha-beta model). A ring
// sends each byte around once (twice for an all-reduce) in size - 1 steps; a tree or PAT, which NCCL uses for small
// messages, takes log2(hosts) steps at a lower bandwidth. The faster one counts, as in NCCL's tuning. In an all-to-all,
// every rank sends to every other, so hosts with more ranks send more. `rings`: collectives that use the host's links
// concurrently, e.g. one per place in a node.
double collective_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings = 1);

// "ring", "tree", "PAT" or "peer to peer": the algorithm that collective_seconds() assumes.
std::string collective_algorithm(Collective collective, int64_t bytes, const Group& group, const Links& links,
                                 int rings = 1);

}  // namespace mpzero::plan
