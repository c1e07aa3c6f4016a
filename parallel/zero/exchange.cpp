#include "parallel/zero/exchange.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "parallel/quantization/quantize.hpp"

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
  // Sends differences as in SDP4Bit (Jia et al. 2024), but relative to the shared copy.
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

namespace {

int64_t largest_message(const std::vector<FlatLayout>& layouts, const BlockFormat& format) {
  int64_t largest = 0;
  for (const FlatLayout& layout : layouts) largest = std::max(largest, format.message_bytes(layout.shard_numel()));
  return largest;
}

}  // namespace

GradientExchange::GradientExchange(const std::vector<FlatLayout>& layouts, int shard_index, Communicator& inter_node,
                                   const Options& options)
    : layouts_(layouts), shard_index_(shard_index), inter_node_(inter_node), options_(options) {
  const int64_t nodes = inter_node.world_size();
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const FlatLayout& layout : layouts) total += sizes.emplace_back((nodes - 1) * layout.shard_numel());
  const at::Tensor all = at::zeros({total}, at::TensorOptions().dtype(options.residual_dtype).device(options.device));
  residuals_ = split_buffer(all, sizes);
  for (size_t u = 0; u < layouts.size(); ++u) residuals_[u] = residuals_[u].view({nodes - 1, layouts[u].shard_numel()});
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(options.device);
  const int64_t message = largest_message(layouts, options.compression.gradient_format());
  sent_ = inter_node.buffer(nodes * message, bytes);
  received_ = inter_node.buffer(nodes * message, bytes);
}

std::unique_ptr<PendingCollective> GradientExchange::sum(size_t unit, const at::Tensor& node_sum,
                                                         const at::Tensor& shard) {
  if (wait_for_reader_) wait_for_reader_();
  const BlockFormat& format = options_.compression.gradient_format();
  const FlatLayout& layout = layouts_[unit];
  const int64_t count = layout.shard_numel();
  const int64_t nodes = inter_node_.world_size(), own = inter_node_.rank();
  const int64_t message = format.message_bytes(count);
  const at::Tensor sent = sent_.narrow(0, 0, nodes * message), received = received_.narrow(0, 0, nodes * message);
  const auto shard_of = [&](int64_t node) { return node_sum.narrow(0, node * count, count); };
  const RoundingKey key =
      rounding_key(options_.compression.seed, static_cast<uint64_t>(step_), unit, static_cast<uint64_t>(own));
  for (int64_t node = 0; node < nodes; ++node) {
    if (node == own) continue;
    quantize_with_residual(shard_of(node), residuals_[unit][node < own ? node : node - 1],
                           sent.narrow(0, node * message, message), format, key,
                           layout.node_shard_begin(shard_index_) + node * count);
  }
  std::unique_ptr<PendingCollective> exchanged = inter_node_.all_to_all(sent, received);
  exchanged->wait();
  sum_messages(received.view({nodes, message}), own, shard_of(own), shard, format);
  return std::make_unique<PendingExchange>(std::move(exchanged), options_.device);
}

void GradientExchange::clear() {
  for (const at::Tensor& residual : residuals_) residual.zero_();
}

MemoryUse GradientExchange::memory_use() const {
  MemoryUse use{.units_in_flight = static_cast<int64_t>(sent_.nbytes() + received_.nbytes())};
  for (const at::Tensor& residual : residuals_) use.gradients += static_cast<int64_t>(residual.nbytes());
  return use;
}

}  // namespace mpzero::parallel
