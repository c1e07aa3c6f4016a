#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "parallel/host/memory_use.hpp"
#include "parallel/zero/flat_unit.hpp"

namespace mpzero::parallel {

// Gathers node shards between nodes in int8. What all nodes hold, the shared copy, is the node shard itself; the
// optimizer writes its new values elsewhere. The owner of a shard sends the difference between the two, and every node,
// the owner's too, adds what was sent to its copy, so that all copies have the same bits. What the rounding loses is
// part of the next difference. A unit's values are sent as they are at first, so that copies begin equal.
class ParameterExchange {
 public:
  // `parameters`: their type and device. `shard_index`: of this rank. The layouts and the communicator outlive it.
  ParameterExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                    const at::TensorOptions& parameters);

  // What the optimizer writes: this rank's new values [shard_numel].
  const at::Tensor& wanted(size_t unit) const { return wanted_[unit]; }
  // This rank's part of the shared copy.
  at::Tensor own(size_t unit, const at::Tensor& node_shard) const;

  // node_shard [node_shard_numel] <- nearer to what the nodes want. Starts with what the current stream has, which is
  // the same stream at each call, and keeps it busy until the end.
  std::unique_ptr<PendingCollective> gather(size_t unit, const at::Tensor& node_shard);

  // The next gather() of each unit sends the values themselves.
  void begin_with_wanted() { next_.assign(next_.size(), Next::kWanted); }
  // The next gather() of the unit sends own() as it is.
  void begin_with_own(size_t unit) { next_[unit] = Next::kOwn; }

  // Of the wanted values and the messages.
  MemoryUse memory_use() const;

 private:
  enum class Next : uint8_t { kWanted, kOwn, kDifference };

  const std::vector<FlatLayout>& layouts_;
  int shard_index_;
  Communicator& inter_node_;
  std::vector<at::Tensor> wanted_;
  std::vector<Next> next_;
  at::Tensor messages_;  // bytes: one from each node
};

}  // namespace mpzero::parallel
