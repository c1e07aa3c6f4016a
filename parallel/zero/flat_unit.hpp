#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/parameter_spec.hpp"
#include "parallel/quantization/weight_codes.hpp"

namespace mpzero::parallel {

// Layout of a flat unit over `num_shards` ranks. The parameters are concatenated and padded at the end, so that all
// shards have the same length and an alignment suitable for vector instructions and NCCL. `nodes` consecutive shards
// form a node shard (see Levels).
class FlatLayout {
 public:
  // `alignment`: alignment of each shard, in elements. The default, 64, is 128 bytes in bf16.
  FlatLayout(int64_t numel, int num_shards, int nodes = 1, int64_t alignment = 64);

  int num_shards() const { return num_shards_; }
  int64_t numel() const { return numel_; }                             // without padding
  int64_t padded_numel() const { return shard_numel_ * num_shards_; }  // with padding
  int64_t shard_numel() const { return shard_numel_; }                 // per shard, including padding

  int64_t shard_begin(int shard) const { return shard_numel_ * shard; }
  int64_t node_shard_numel() const { return shard_numel_ * nodes_; }
  // Returns the start of the node shard that contains the shard.
  int64_t node_shard_begin(int shard) const { return shard_begin(shard / nodes_ * nodes_); }
  // Returns the number of parameter elements in the shard, excluding padding.
  int64_t shard_used(int shard) const;
  // Returns the layout of a quantized unit, in which each shard is a message. Sizes are in elements of `dtype`.
  FlatLayout of_messages(WeightCodes codes, at::ScalarType dtype) const;

 private:
  int num_shards_;
  int nodes_;
  int64_t numel_;
  int64_t shard_numel_;
};

// Returns the layout of a unit's values over `num_shards` shards.
FlatLayout layout_of(const UnitSpec& unit, int num_shards, int nodes = 1);

// Returns the sizes of the full units in elements, including padding.
std::vector<int64_t> full_sizes(const std::vector<FlatLayout>& layouts);
// Returns consecutive views of `buffer` with the given sizes, in elements.
std::vector<at::Tensor> split_buffer(const at::Tensor& buffer, const std::vector<int64_t>& sizes);

// Returns the unit's parameters as views of `flat` [>= unit.numel()], in unit order and with their shapes.
std::vector<at::Tensor> parameter_views(const at::Tensor& flat, const UnitSpec& unit);

}  // namespace mpzero::parallel
