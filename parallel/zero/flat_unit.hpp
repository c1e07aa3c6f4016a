#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/quantization/weight_codes.hpp"

namespace mpzero::parallel {

// Splits a flat unit over `num_shards` ranks: the concatenated parameters, padded at the end so that all shards have
// the same length and an alignment suitable for vector instructions and NCCL. `nodes` consecutive shards form a node
// shard (see Levels).
class FlatLayout {
 public:
  // `alignment`: of each shard, in elements; the default is 128 bytes of bf16.
  FlatLayout(int64_t numel, int num_shards, int nodes = 1, int64_t alignment = 64);

  int num_shards() const { return num_shards_; }
  int64_t numel() const { return numel_; }                             // without padding
  int64_t padded_numel() const { return shard_numel_ * num_shards_; }  // with padding
  int64_t shard_numel() const { return shard_numel_; }                 // of each shard, padding included

  int64_t shard_begin(int shard) const { return shard_numel_ * shard; }
  int64_t node_shard_numel() const { return shard_numel_ * nodes_; }
  // Start of the node shard that contains the shard.
  int64_t node_shard_begin(int shard) const { return shard_begin(shard / nodes_ * nodes_); }
  // The number of parameter elements in the shard; the rest is padding.
  int64_t shard_used(int shard) const;
  // For a quantized unit: the layout of its shards' messages, in elements of `dtype`, instead of its values.
  FlatLayout of_messages(WeightCodes codes, at::ScalarType dtype) const;

 private:
  int num_shards_;
  int nodes_;
  int64_t numel_;
  int64_t shard_numel_;
};

// The layout of a unit's values over `num_shards` shards.
FlatLayout layout_of(const UnitSpec& unit, int num_shards, int nodes = 1);

// The sizes of the full units, padding included.
std::vector<int64_t> full_sizes(const std::vector<FlatLayout>& layouts);
// Consecutive views of `buffer`, with `sizes` elements.
std::vector<at::Tensor> split_buffer(const at::Tensor& buffer, const std::vector<int64_t>& sizes);

// The unit's parameters as views of `flat` [>= unit.numel()], in the unit's order and with their shapes.
std::vector<at::Tensor> parameter_views(const at::Tensor& flat, const UnitSpec& unit);

}  // namespace mpzero::parallel
