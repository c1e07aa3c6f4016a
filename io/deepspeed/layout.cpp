#include "io/deepspeed/layout.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace {

// As many elements of 4 bytes as fit an address space.
constexpr int64_t kMaxNumel = int64_t{1} << 60;
// DeepSpeed's nccl_start_alignment_factor.
constexpr int64_t kAlignment = 2;

int64_t divide_up(int64_t value, int64_t divisor) { return value / divisor + (value % divisor != 0 ? 1 : 0); }

int64_t checked_numel(const ParameterSpec& parameter, const std::string& file) {
  int64_t numel = 1;
  for (const int64_t extent : parameter.shape) {
    if (extent < 0 || __builtin_mul_overflow(numel, extent, &numel) || numel > kMaxNumel) {
      throw_damaged(file, fmt::format("parameter {:.100} has an impossible shape", parameter.name));
    }
  }
  return numel;
}

}  // namespace

DeepSpeedLayout::DeepSpeedLayout(std::vector<Group> groups, int stage, int ranks, const std::string& file)
    : stage_(stage), ranks_(ranks), groups_(std::move(groups)) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    int64_t offset = 0;
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const ParameterSpec& parameter = group.parameters[i];
      const int64_t numel = checked_numel(parameter, file);
      if (!places_.try_emplace(parameter.name, Place{g, offset, numel}).second) {
        throw_damaged(file, fmt::format("it lists parameter {:.100} twice", parameter.name));
      }
      offset += stage_ == 3 ? divide_up(numel, ranks_) : numel;
      if (!group.paddings.empty()) offset += group.paddings[i];
      if (offset > kMaxNumel) throw_damaged(file, "its parameters have more elements than there can be");
    }
    flat_numels_.push_back(offset);
    partition_numels_.push_back(stage_ == 3 ? offset : divide_up(offset, kAlignment * ranks_) * kAlignment);
  }
}

std::vector<ParameterSpec> DeepSpeedLayout::parameters() const {
  std::vector<ParameterSpec> all;
  for (const Group& group : groups_) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

int64_t DeepSpeedLayout::used_numel(size_t group, int rank) const {
  const int64_t partition = partition_numels_[group];
  if (stage_ == 3) return partition;
  return std::clamp<int64_t>(flat_numels_[group] - rank * partition, 0, partition);
}

bool DeepSpeedLayout::holds_weights(int rank) const {
  return std::any_of(places_.begin(), places_.end(), [&](const auto& entry) {
    const Place& place = entry.second;
    return stage_ == 3 ? rank * divide_up(place.numel, ranks_) < place.numel : used_numel(place.group, rank) > 0;
  });
}

bool DeepSpeedLayout::visit(const std::string& parameter, int64_t begin, int64_t end,
                            const std::function<void(const Slice&)>& visit) const {
  const auto found = places_.find(parameter);
  if (found == places_.end()) return false;
  const Place& place = found->second;
  // One piece of the parameter (stage 3) or of the flat group (stages 1 and 2) belongs to one rank.
  const bool sharded = stage_ == 3;
  const int64_t piece = sharded ? divide_up(place.numel, ranks_) : partition_numels_[place.group];
  const int64_t shift = sharded ? 0 : place.offset;
  while (begin < end) {
    const int64_t position = begin + shift;
    const int64_t rank = position / piece;
    const int64_t count = std::min(end - begin, (rank + 1) * piece - position);
    visit({.group = place.group,
           .rank = static_cast<int>(rank),
           .offset = position - rank * piece + (sharded ? place.offset : 0),
           .begin = begin,
           .count = count});
    begin += count;
  }
  return true;
}

}  // namespace mpzero::io
