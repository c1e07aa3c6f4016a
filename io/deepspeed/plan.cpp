#include "io/deepspeed/plan.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/parameter_spec.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/deepspeed/descriptions.hpp"
#include "io/deepspeed/folder.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace {

// Maximum number of 4-byte elements in the address space.
constexpr int64_t kMaxNumel = int64_t{1} << 60;
// DeepSpeed's nccl_start_alignment_factor.
constexpr int64_t kPartitionAlignment = 2;

int64_t divide_up(int64_t value, int64_t divisor) { return value / divisor + (value % divisor != 0 ? 1 : 0); }

int64_t checked_numel(const ParameterSpec& parameter, const std::string& file) {
  int64_t numel = 1;
  for (const int64_t extent : parameter.shape) {
    if (extent < 0 || __builtin_mul_overflow(numel, extent, &numel) || numel > kMaxNumel) {
      throw_damaged(file, fmt::format("parameter {:.100} has an invalid shape", parameter.name));
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
        throw_damaged(file, fmt::format("the file lists parameter {:.100} twice", parameter.name));
      }
      offset += stage_ == 3 ? divide_up(numel, ranks_) : numel;
      if (!group.paddings.empty()) offset += group.paddings[i];
      if (offset > kMaxNumel) throw_damaged(file, "the file's parameters have too many elements");
    }
    flat_numels_.push_back(offset);
    partition_numels_.push_back(stage_ == 3 ? offset
                                            : divide_up(offset, kPartitionAlignment * ranks_) * kPartitionAlignment);
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
  // Number of elements per rank: a piece of the parameter (stage 3) or of the flat group (stages 1 and 2).
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

namespace {

std::string stem_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Returns a unit's parameters in the order of transformers' modules, which DeepSpeed's flat groups use: attention, MLP,
// other modules. In attention, a fused projection follows the output projection, and norms follow projections. A bias
// follows its weight. tests/io/deepspeed/test_plan.cpp compares each family with transformers.
std::vector<ParameterSpec> in_module_order(const UnitSpec& unit) {
  const auto module_of = [](const ParameterSpec& parameter) { return stem_of(parameter.name); };
  const auto place = [&](const ParameterSpec& parameter) {
    const std::string module = module_of(parameter);
    const auto has = [&](std::string_view part) { return module.find(part) != std::string::npos; };
    return std::tuple(!has(".self_attn."), !has(".mlp."), module.ends_with("_norm"), module.ends_with(".qkv_proj"),
                      std::ranges::find(unit.parameters, module, module_of) - unit.parameters.begin());
  };
  std::vector<ParameterSpec> ordered = unit.parameters;
  std::ranges::stable_sort(ordered, {}, place);
  return ordered;
}

std::vector<ParameterSpec> in_the_order_of_transformers(std::span<const UnitSpec> units) {
  std::vector<ParameterSpec> all;
  const bool of_t5 = units.front().parameters.front().name == kSharedEmbedding;  // already in DeepSpeed's order
  for (const UnitSpec& unit : units)
    std::ranges::copy(of_t5 ? unit.parameters : in_module_order(unit), std::back_inserter(all));
  return all;
}

// Stage 3 completes a group when it has at least sub_group_size elements on a rank (stage3.py,
// _create_fp16_sub_groups).
std::vector<DeepSpeedLayout::Group> sub_groups(const std::vector<ParameterSpec>& parameters,
                                               const DeepSpeedSettings& settings) {
  std::vector<DeepSpeedLayout::Group> groups;
  int64_t size = 0;
  for (const ParameterSpec& parameter : parameters) {
    if (groups.empty() || size >= settings.sub_group_size) {
      groups.emplace_back();
      size = 0;
    }
    groups.back().parameters.push_back(parameter);
    size += (parameter.numel() + settings.ranks - 1) / settings.ranks;
  }
  return groups;
}

DeepSpeedLayout lay_out(int stage, std::span<const UnitSpec> units, const DeepSpeedSettings& settings) {
  std::vector<ParameterSpec> parameters = in_the_order_of_transformers(units);
  if (stage == 3) return {sub_groups(parameters, settings), stage, settings.ranks, "this run"};
  std::vector<DeepSpeedLayout::Group> groups;
  groups.push_back({std::move(parameters), {}});
  return {std::move(groups), stage, settings.ranks, "this run"};
}

}  // namespace

DeepSpeedPlan::DeepSpeedPlan(const TrainingProgress& progress, std::span<const UnitSpec> units,
                             const DeepSpeedSettings& settings)
    : bf16_(progress.dtype == "bf16"), layout_(lay_out(std::max(progress.zero_stage, 1), units, settings)) {
  add_model_files(progress, settings);
  num_model_files_ = files_.size();
  for (int rank = 0; rank < settings.ranks; ++rank) add_optimizer_file(rank, progress, settings);
}

void DeepSpeedPlan::add_model_files(const TrainingProgress& progress, const DeepSpeedSettings& settings) {
  int64_t total = 0;
  for (const ParameterSpec& parameter : layout_.parameters()) total += parameter.numel();
  const int64_t storage = has_module() ? total * module_element_bytes() : 0;
  const std::string description = describe_model(layout_, progress, settings);
  const int count = has_module() ? 1 : settings.ranks;
  for (int rank = 0; rank < count; ++rank) {
    const std::string name = deepspeed_model_file(layout_.stage(), rank);
    files_.push_back({name, TorchZipLayout(stem_of(name), description, {&storage, 1}), {0}});
  }
}

void DeepSpeedPlan::add_optimizer_file(int rank, const TrainingProgress& progress, const DeepSpeedSettings& settings) {
  std::vector<int64_t> filled(layout_.groups().size());
  for (size_t g = 0; g < filled.size(); ++g) {
    for (const ParameterSpec& parameter : layout_.groups()[g].parameters) {
      layout_.visit(parameter.name, 0, parameter.numel(), [&](const DeepSpeedLayout::Slice& slice) {
        if (slice.rank == rank) filled[g] += slice.count;
      });
    }
  }
  std::vector<int64_t> storages;
  std::vector<int64_t> padding;
  for (size_t g = 0; g < filled.size(); ++g) {
    for (const StateKind kind : {StateKind::kMaster, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      const int64_t numel = state_numel(layout_, g, rank, kind);
      storages.push_back(numel * static_cast<int64_t>(sizeof(float)));
      padding.push_back((numel - filled[g]) * static_cast<int64_t>(sizeof(float)));
    }
  }
  const std::string name = deepspeed_optimizer_file(bf16_, rank);
  files_.push_back({name,
                    TorchZipLayout(stem_of(name), describe_optimizer(layout_, rank, progress, settings), storages),
                    std::move(padding)});
}

DeepSpeedPlan::Place DeepSpeedPlan::place(const DeepSpeedLayout::Slice& slice, StateKind kind) const {
  return {.file = num_model_files_ + static_cast<size_t>(slice.rank),
          .storage = 3 * slice.group + static_cast<size_t>(kind),
          .offset = slice.offset * static_cast<int64_t>(sizeof(float))};
}

DeepSpeedPlan::Place DeepSpeedPlan::module_place(const std::string& parameter, int64_t begin) const {
  return {.file = 0, .storage = 0, .offset = (layout_.flat_offset(parameter) + begin) * module_element_bytes()};
}

}  // namespace mpzero::io
