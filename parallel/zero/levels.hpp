#pragma once

#include "base/process_group.hpp"
#include "parallel/comm/communicator.hpp"

namespace mpzero::parallel {

// The ranks of a run as nodes of equal size: places between which the network is slow compared to the one within.
// A node is a machine as a rule, but may be several machines of one NVLink domain, or a part of one. One node of all
// ranks is ZeRO without levels.
struct ParallelLayout {
  int nodes = 1;
  int ranks_per_node = 1;
  int sequence_ranks = 1;  // consecutive ranks that share their sequences

  // All of them: they share the states of a run and sum their gradients.
  int ranks() const { return nodes * ranks_per_node; }
  // The batch, the loader and the loss ask here for the ranks that read different sequences.
  DataParallel data_parallel(int rank) const {
    return {.rank = rank / sequence_ranks, .size = ranks() / sequence_ranks};
  }
  SequenceParallel sequence_parallel(int rank) const { return {.rank = rank % sequence_ranks, .size = sequence_ranks}; }
  int data_parallel_size() const { return data_parallel(0).size; }
};

// A rank's communicators for one use, parameters or gradients.
//
// A unit has one shard per rank. A node's ranks together hold all shards: the rank at place p of its node keeps the
// node shard p, which is `nodes` consecutive shards, and of these the one of its node is its own. So a sum within the
// node and then one between the nodes ends at the rank's own shard, and gathers go the same way back, without copies.
class Levels {
 public:
  // One level: all ranks are one node. Not explicit, because most callers have no more than that.
  Levels(Communicator& all) : intra_node_(&all) {}
  // `intra_node`: the ranks of this rank's node, by place. `inter_node`: the ranks at this place of all nodes, by node.
  // Both outlive what uses the levels.
  Levels(Communicator& intra_node, Communicator& inter_node) : intra_node_(&intra_node), inter_node_(&inter_node) {}

  Communicator& intra_node() const { return *intra_node_; }
  Communicator& inter_node() const { return *inter_node_; }  // only if has_nodes()

  // Whether a collective within the node has other ranks, and one between nodes.
  bool has_peers() const { return intra_node_->world_size() > 1; }
  bool has_nodes() const { return inter_node_ != nullptr && inter_node_->world_size() > 1; }

  ParallelLayout layout() const {
    return {.nodes = inter_node_ == nullptr ? 1 : inter_node_->world_size(),
            .ranks_per_node = intra_node_->world_size()};
  }
  // Which shard of each unit is this rank's own.
  int shard_index() const { return intra_node_->rank() * layout().nodes + node(); }
  int node() const { return inter_node_ == nullptr ? 0 : inter_node_->rank(); }

  // For memory that is sent and received repeatedly: the communicator of the node if the rank has peers there.
  Communicator& nearest() const { return has_peers() || !has_nodes() ? *intra_node_ : *inter_node_; }

 private:
  Communicator* intra_node_;
  Communicator* inter_node_ = nullptr;
};

}  // namespace mpzero::parallel
