#pragma once

#include <cstdint>
#include <string>

namespace mpzero::plan {

// The collectives of Communicator.
enum class Collective : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll };

// What connects GPUs, per GPU or per host and direction. Sources are with the constants in plan_machine.cpp.
struct Links {
  double within_bytes_per_second = 0;              // what one GPU sends to others of its host in a collective
  double within_hop_seconds = 0;                   // one step of a ring within a host
  double between_bytes_per_second = 0;             // what one host sends, over all its cards, in rings and trees
  double between_all_to_all_bytes_per_second = 0;  // the same where each rank sends to each other; 0: as in rings
  double between_hop_seconds = 0;                  // one step from host to host
  double start_seconds = 0;                        // of a collective, whatever its size
  bool peer_access = false;                        // the GPUs of a host write into each other's memory, as over NVLink
};

// Ranks that take part in a collective: `hosts` of them, with `per_host` each.
struct Group {
  int hosts = 1;
  int per_host = 1;

  int size() const { return hosts * per_host; }
};

// Seconds of a collective over `bytes`, the full tensor, as latency and bytes over bandwidth (alpha and beta). A ring
// passes each byte once around (twice for an all-reduce) and has size - 1 steps; a tree and PAT, which NCCL takes for
// small messages, have log2 of the hosts and a lower bandwidth. The faster of them is taken, as NCCL's tuning does. In
// an all-to-all each rank sends to each other: more leaves a host with more ranks on it. `rings`: collectives that use
// the host's links at the same time, e.g. those of all places of the nodes.
double collective_seconds(Collective collective, int64_t bytes, const Group& group, const Links& links, int rings = 1);

// "ring", "tree", "PAT" or "peer to peer": which of them that is.
std::string collective_algorithm(Collective collective, int64_t bytes, const Group& group, const Links& links,
                                 int rings = 1);

}  // namespace mpzero::plan
