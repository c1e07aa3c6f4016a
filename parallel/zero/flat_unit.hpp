#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/quantization/weight_codes.hpp"

namespace mpzero::parallel {

// How a flat unit is split over `num_shards` ranks: the concatenated parameters, padded at the end so that every shard
// has the same length and an alignment suitable for vector instructions and NCCL. `nodes` consecutive shards are a node
// shard (see Levels).
class FlatLayout {
 public:
  // `alignment`: of a shard, in elements: 128 bytes of bf16.
  FlatLayout(int64_t numel, int num_shards, int nodes = 1, int64_t alignment = 64);

  int num_shards() const { return num_shards_; }
  int64_t numel() const { return numel_; }                             // without padding
  int64_t padded_numel() const { return shard_numel_ * num_shards_; }  // with it
  int64_t shard_numel() const { return shard_numel_; }                 // of each shard, padding included

  int64_t shard_begin(int shard) const { return shard_numel_ * shard; }
  int64_t node_shard_numel() const { return shard_numel_ * nodes_; }
  // Of the node shard that holds the shard.
  int64_t node_shard_begin(int shard) const { return shard_begin(shard / nodes_ * nodes_); }
  // The number of parameter elements in the shard; the rest is padding.
  int64_t shard_used(int shard) const;
  // Of a coded unit's shards in place of its values: their messages, as elements of `dtype`.
  FlatLayout of_messages(WeightCodes codes, at::ScalarType dtype) const;

 private:
  int num_shards_;
  int nodes_;
  int64_t numel_;
  int64_t shard_numel_;
};

// Of a unit's values over so many shards.
FlatLayout layout_of(const UnitSpec& unit, int num_shards, int nodes = 1);

// The sizes of the full units, padding included.
std::vector<int64_t> full_sizes(const std::vector<FlatLayout>& layouts);
// Consecutive views of `buffer`, with these numbers of elements.
std::vector<at::Tensor> split_buffer(const at::Tensor& buffer, const std::vector<int64_t>& sizes);

// The unit's parameters as views of `flat` [>= unit.numel()], in the order of the unit and of their shapes.
std::vector<at::Tensor> parameter_views(const at::Tensor& flat, const UnitSpec& unit);

}  // namespace mpzero::parallel
