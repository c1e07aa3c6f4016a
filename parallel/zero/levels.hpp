#pragma once

#include "base/process_group.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// Groups the ranks of a run into nodes (shard groups) of equal size, with a fast network within a node and a slower one
// between nodes. A node is usually a host, but may be several hosts of one NVLink domain, or part of a host. One node
// of all ranks is ZeRO without levels.
struct ParallelLayout {
  int nodes = 1;
  int ranks_per_node = 1;
  int sequence_ranks = 1;  // consecutive ranks that share their sequences

  // All ranks: they share the states of a run and sum their gradients.
  int ranks() const { return nodes * ranks_per_node; }
  // The ranks that read different sequences; used by the batch, the loader and the loss.
  DataParallel data_parallel(int rank) const {
    return {.rank = rank / sequence_ranks, .size = ranks() / sequence_ranks};
  }
  SequenceParallel sequence_parallel(int rank) const { return {.rank = rank % sequence_ranks, .size = sequence_ranks}; }
  int data_parallel_size() const { return data_parallel(0).size; }
};

// A rank's communicators for one use, parameters or gradients.
//
// A unit has one shard per rank. A node's ranks together hold all shards: the rank at place p of its node holds node
// shard p (`nodes` consecutive shards) and owns the shard of its node. So a reduce-scatter within the node, followed by
// one between nodes, yields the rank's own shard; gathers reverse this, without copies.
class Levels {
 public:
  // One level: all ranks are one node. Not explicit, since most callers have one level.
  Levels(Communicator& all) : intra_node_(&all) {}
  // `intra_node`: the ranks of this rank's node, by place. `inter_node`: the ranks at this place of all nodes, by node.
  // Both must outlive the users of the levels.
  Levels(Communicator& intra_node, Communicator& inter_node) : intra_node_(&intra_node), inter_node_(&inter_node) {}

  Communicator& intra_node() const { return *intra_node_; }
  Communicator& inter_node() const { return *inter_node_; }  // only if has_nodes()

  // Whether there are other ranks in the node, and other nodes.
  bool has_peers() const { return intra_node_->world_size() > 1; }
  bool has_nodes() const { return inter_node_ != nullptr && inter_node_->world_size() > 1; }

  ParallelLayout layout() const {
    return {.nodes = inter_node_ == nullptr ? 1 : inter_node_->world_size(),
            .ranks_per_node = intra_node_->world_size()};
  }
  // The index of this rank's own shard of each unit.
  int shard_index() const { return intra_node_->rank() * layout().nodes + node(); }
  int node() const { return inter_node_ == nullptr ? 0 : inter_node_->rank(); }

  // The communicator to allocate communicated buffers from: the node's if the rank has peers there.
  Communicator& nearest() const { return has_peers() || !has_nodes() ? *intra_node_ : *inter_node_; }

 private:
  Communicator* intra_node_;
  Communicator* inter_node_ = nullptr;
};

}  // namespace mpzero::parallel
