#include "parallel/zero/flat_unit.hpp"

#include <algorithm>

namespace mpzero::parallel {

FlatLayout::FlatLayout(int64_t numel, int num_shards, int nodes, int64_t alignment)
    : num_shards_(num_shards), nodes_(nodes), numel_(numel) {
  const int64_t unaligned = (numel + num_shards - 1) / num_shards;
  shard_numel_ = (unaligned + alignment - 1) / alignment * alignment;
}

int64_t FlatLayout::shard_used(int shard) const {
  return std::clamp<int64_t>(numel_ - shard_begin(shard), 0, shard_numel_);
}

FlatLayout layout_of(const UnitSpec& unit, int num_shards, int nodes) {
  return unit.coded ? FlatLayout(unit.numel(), num_shards, nodes, kCodedGroup)
                    : FlatLayout(unit.numel(), num_shards, nodes);
}

FlatLayout FlatLayout::of_messages(WeightCodes codes, at::ScalarType dtype) const {
  const int64_t shard = code_bytes(codes, shard_numel_) / static_cast<int64_t>(c10::elementSize(dtype));
  return {shard * num_shards_, num_shards_, nodes_};
}

std::vector<int64_t> full_sizes(const std::vector<FlatLayout>& layouts) {
  std::vector<int64_t> sizes;
  for (const FlatLayout& layout : layouts) sizes.push_back(layout.padded_numel());
  return sizes;
}

std::vector<at::Tensor> split_buffer(const at::Tensor& buffer, const std::vector<int64_t>& sizes) {
  std::vector<at::Tensor> views;
  views.reserve(sizes.size());
  int64_t offset = 0;
  for (const int64_t size : sizes) {
    views.push_back(buffer.narrow(0, offset, size));
    offset += size;
  }
  return views;
}

std::vector<at::Tensor> parameter_views(const at::Tensor& flat, const UnitSpec& unit) {
  std::vector<at::Tensor> views;
  views.reserve(unit.parameters.size());
  int64_t offset = 0;
  for (const ParameterSpec& parameter : unit.parameters) {
    views.push_back(flat.narrow(0, offset, parameter.numel()).view(parameter.shape));
    offset += parameter.numel();
  }
  return views;
}

}  // namespace mpzero::parallel
