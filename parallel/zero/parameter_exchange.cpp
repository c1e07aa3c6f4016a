#include "parallel/zero/parameter_exchange.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "parallel/quantization/quantize.hpp"
#include "parallel/zero/pending_exchange.hpp"

namespace mpzero::parallel {
namespace {

int64_t largest_message(const std::vector<FlatLayout>& layouts) {
  int64_t largest = 0;
  for (const FlatLayout& layout : layouts) largest = std::max(largest, kInt8.message_bytes(layout.shard_numel()));
  return largest;
}

}  // namespace

ParameterExchange::ParameterExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                                     const at::TensorOptions& parameters)
    : layouts_(layouts),
      shard_index_(shard_index),
      inter_node_(inter_node),
      next_(layouts.size(), Next::kWanted),
      messages_(inter_node.buffer(inter_node.world_size() * largest_message(layouts), parameters.dtype(at::kByte))) {
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const FlatLayout& layout : layouts) total += sizes.emplace_back(layout.shard_numel());
  wanted_ = split_buffer(at::zeros({total}, parameters), sizes);
}

at::Tensor ParameterExchange::own(size_t unit, const at::Tensor& node_shard) const {
  const int64_t count = layouts_[unit].shard_numel();
  return node_shard.narrow(0, layouts_[unit].shard_begin(shard_index_) - layouts_[unit].node_shard_begin(shard_index_),
                           count);
}

std::unique_ptr<PendingCollective> ParameterExchange::gather(size_t unit, const at::Tensor& node_shard) {
  const at::Tensor own_shard = own(unit, node_shard);
  const Next next = std::exchange(next_[unit], Next::kDifference);
  if (next != Next::kDifference) {
    if (next == Next::kWanted) own_shard.copy_(wanted_[unit]);
    return inter_node_.all_gather(own_shard, node_shard);
  }
  // Differences instead of values, as Jia et al. 2024 (SDP4Bit), here to what all nodes hold.
  const int64_t count = own_shard.numel();
  const int64_t nodes = inter_node_.world_size();
  const int64_t bytes = kInt8.message_bytes(count);
  const at::Tensor messages = messages_.narrow(0, 0, nodes * bytes);
  const auto message_of = [&](int64_t node) { return messages.narrow(0, node * bytes, bytes); };
  quantize_difference(wanted_[unit], own_shard, message_of(inter_node_.rank()), kInt8);
  std::unique_ptr<PendingCollective> gathered = inter_node_.all_gather(message_of(inter_node_.rank()), messages);
  gathered->wait();
  for (int64_t node = 0; node < nodes; ++node) {
    add_message(message_of(node), node_shard.narrow(0, node * count, count), kInt8);
  }
  return std::make_unique<PendingExchange>(std::move(gathered), node_shard.device());
}

MemoryUse ParameterExchange::memory_use() const {
  MemoryUse use{.units_in_flight = static_cast<int64_t>(messages_.nbytes())};
  for (const at::Tensor& wanted : wanted_) use.parameters += static_cast<int64_t>(wanted.nbytes());
  return use;
}

}  // namespace mpzero::parallel
