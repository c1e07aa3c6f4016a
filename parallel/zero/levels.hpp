#pragma once

#include "base/process_group.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Groups of ranks: nodes (shard groups) of equal size, with a fast network within a node and a slower network between
// nodes. A node is usually a host, but may be several hosts of one NVLink domain, or part of a host. A single node that
// contains all ranks corresponds to ZeRO with one level.
struct ParallelLayout {
  int nodes = 1;
  int ranks_per_node = 1;
  int sequence_ranks = 1;  // number of consecutive ranks that share their sequences

  // Returns the number of ranks that share the states of a run and sum their gradients.
  int ranks() const { return nodes * ranks_per_node; }
  // Returns a rank's position among the ranks that read different sequences.
  DataParallel data_parallel(int rank) const {
    return {.rank = rank / sequence_ranks, .size = ranks() / sequence_ranks};
  }
  SequenceParallel sequence_parallel(int rank) const { return {.rank = rank % sequence_ranks, .size = sequence_ranks}; }
  int data_parallel_size() const { return data_parallel(0).size; }
};

// Communicators of one rank, for either parameters or gradients.
//
// A unit has one shard per rank. The ranks of a node together store all shards. The rank with index p in its node
// stores node shard p (`nodes` consecutive shards) and owns the shard with its node's index. A reduce-scatter within
// the node and then between nodes therefore yields the rank's own shard. Gathers run in the reverse order: first
// between nodes, then within the node.
class Levels {
 public:
  // Creates a single level, with all ranks in one node. The constructor is implicit because most callers have a single
  // level.
  Levels(Communicator& all) : intra_node_(&all) {}
  // `intra_node`: ranks of this rank's node, by index. `inter_node`: ranks with the same index in all nodes, ordered by
  // node. Both communicators must outlive the users of the levels.
  Levels(Communicator& intra_node, Communicator& inter_node) : intra_node_(&intra_node), inter_node_(&inter_node) {}

  Communicator& intra_node() const { return *intra_node_; }
  Communicator& inter_node() const { return *inter_node_; }  // requires has_nodes()

  // Return true if this rank's node has other ranks (has_peers) or if the run has other nodes (has_nodes).
  bool has_peers() const { return intra_node_->world_size() > 1; }
  bool has_nodes() const { return inter_node_ != nullptr && inter_node_->world_size() > 1; }

  ParallelLayout layout() const {
    return {.nodes = inter_node_ == nullptr ? 1 : inter_node_->world_size(),
            .ranks_per_node = intra_node_->world_size()};
  }
  // Returns the index of this rank's own shard in each unit.
  int shard_index() const { return intra_node_->rank() * layout().nodes + node(); }
  int node() const { return inter_node_ == nullptr ? 0 : inter_node_->rank(); }

  // Returns the communicator that allocates communication buffers: the intra-node communicator if the node has other
  // ranks or is the only node, otherwise the inter-node communicator.
  Communicator& nearest() const { return has_peers() || !has_nodes() ? *intra_node_ : *inter_node_; }

 private:
  Communicator* intra_node_;
  Communicator* inter_node_ = nullptr;
};

}  // namespace mpzero::parallel
