#include "io/deepspeed/rank_file.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/words.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/deepspeed/without_zero.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr const char* kStates = "optimizer_state_dict";

std::optional<double> number_of(const Value& value) {
  if (value.kind() != Kind::kFloat && value.kind() != Kind::kInt) return std::nullopt;
  return value.number();
}

std::optional<double> number_in(const Value& dict, std::string_view key) {
  const std::optional<Value> found = dict.find(key);
  return found ? number_of(*found) : std::nullopt;
}

DeepSpeedParamGroup read_param_group(const Value& dict) {
  DeepSpeedParamGroup group;
  group.lr = number_in(dict, "lr");
  group.weight_decay = number_in(dict, "weight_decay");
  if (const auto betas = dict.find("betas"); betas && (betas->kind() == Kind::kList || betas->kind() == Kind::kTuple)) {
    if (const std::vector<Value> both = betas->elements(); both.size() == 2) {
      group.beta1 = number_of(both[0]);
      group.beta2 = number_of(both[1]);
    }
  }
  group.eps = number_in(dict, "eps");
  if (const auto correction = dict.find("bias_correction"); correction && correction->kind() == Kind::kBool) {
    group.bias_correction = correction->boolean();
  }
  return group;
}

}  // namespace

DeepSpeedPartition read_deepspeed_partition(const TorchZipReader& archive) {
  const Value states = archive.root().at(kStates);
  DeepSpeedPartition partition;
  // BF16_Optimizer (stage 1 in bf16 with fp32 gradient accumulation) does not record its stage.
  const std::optional<Value> stage = states.find("zero_stage");
  if (!stage && !states.find("group_paddings")) states.at("zero_stage");
  if (stage && (stage->integer() < 1 || stage->integer() > 3)) stage->throw_unexpected("a ZeRO stage from 1 to 3");
  partition.stage = stage ? static_cast<int>(stage->integer()) : 1;
  const Value count = states.at("partition_count");
  if (count.kind() == Kind::kInt) {
    partition.ranks = count.integer();
  } else {
    const std::vector<int64_t> of_groups = count.integers();
    if (of_groups.empty() ||
        std::adjacent_find(of_groups.begin(), of_groups.end(), std::not_equal_to<>()) != of_groups.end()) {
      count.throw_unexpected("an equal number of ranks for every group (mixture of experts is not supported)");
    }
    partition.ranks = of_groups[0];
  }
  if (const std::optional<Value> paddings = states.find("param_alignment_paddings"); paddings && !paddings->is_none()) {
    for (const Value& group : paddings->elements()) partition.paddings.push_back(group.integers());
  }
  return partition;
}

DeepSpeedRankFile::DeepSpeedRankFile(std::unique_ptr<TorchZipReader> archive, const DeepSpeedLayout& layout, int rank)
    : archive_(std::move(archive)), layout_(layout), rank_(rank), groups_(layout.groups().size()) {
  if (layout.stage() == 0) {
    const StatesWithoutZero states = read_states_without_zero(archive_->root(), archive_->path());
    if (states.groups.size() != groups_.size())
      throw_damaged(archive_->path(), "the file was replaced while it was being read");
    read_groups(states.masters, *states.optimizer, std::nullopt);
    return;
  }
  const DeepSpeedPartition partition = read_deepspeed_partition(*archive_);
  if (partition.stage != layout.stage() || partition.ranks != layout.ranks()) {
    throw_incomplete(
        "{} has ZeRO stage {} and {}, but the checkpoint has stage {} and {}; the file is from another "
        "run; {}",
        archive_->path().string(), partition.stage, counted(partition.ranks, "rank"), layout.stage(),
        counted(layout.ranks(), "rank"), kChooseAnother);
  }
  const bool sharded = layout.stage() == 3;
  const Value states = archive_->root().at(kStates);
  const Value masters = states.at(sharded ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
  const std::vector<Value> flat = masters.elements();
  if (flat.size() != groups_.size()) {
    masters.throw_unexpected(fmt::format("a list of {} tensors, one for each entry of param_shapes", groups_.size()));
  }
  read_groups(flat, states.at(sharded ? "optimizer_state_dict" : "base_optimizer_state"),
              states.find("base_optimizer_state_step"));
}

void DeepSpeedRankFile::read_groups(const std::vector<Value>& masters, const Value& optimizer,
                                    const std::optional<Value>& elastic_step) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g][static_cast<size_t>(StateKind::kMaster)] = checked(masters[g], g);
    read_moments(optimizer, elastic_step, g);
  }
}

void DeepSpeedRankFile::read_moments(const Value& optimizer, const std::optional<Value>& elastic_step, size_t group) {
  std::optional<Value> state;
  std::optional<Value> step;  // shared by all parameters in older optimizers; 0 in FusedAdam
  if (optimizer.kind() == Kind::kList) {
    // With zero_optimization.elastic_checkpoint, the state is one dict per group without padding.
    const std::vector<Value> of_groups = optimizer.elements();
    if (group >= of_groups.size()) optimizer.throw_unexpected("a dict for each parameter group");
    state = of_groups[group];
    step = elastic_step;
  } else {
    for (const Value& entry : optimizer.at("param_groups").elements()) {
      if (group == 0) param_groups_.push_back(read_param_group(entry));
      if (!step) step = entry.find("step");
    }
    // torch.optim numbers the flat tensors in the order of the groups.
    state = optimizer.at("state").find(static_cast<int64_t>(group));
  }
  if (state) {
    if (const auto own = state->find("step")) step = own;
  }
  // A step of 0 without a state means that no update was applied.
  if (const int64_t count = step ? step_in(*step) : 0; step && (state || count != 0)) set_step(*step, count);
  if (!state) return;
  const auto first = state->find("exp_avg");
  if (!first) return;
  groups_[group][static_cast<size_t>(StateKind::kExpAvg)] = checked(*first, group);
  groups_[group][static_cast<size_t>(StateKind::kExpAvgSq)] = checked(state->at("exp_avg_sq"), group);
}

int64_t DeepSpeedRankFile::step_in(const Value& value) {
  if (value.kind() != Kind::kTensor) return value.integer();
  const pickle::Tensor tensor = value.tensor();
  if (tensor.numel != 1) value.throw_unexpected("a number of steps");
  float step = 0;
  archive_->read(tensor, 0, {&step, 1});
  if (!(step >= 0 && step < 0x1p24F)) value.throw_unexpected("a number of steps");
  return std::llround(step);
}

void DeepSpeedRankFile::set_step(const Value& owner, int64_t step) {
  if (step_ && *step_ != step) {
    owner.throw_unexpected(
        fmt::format("{}, as in the previous parameter groups (mpzero uses one step count for all groups)", *step_));
  }
  step_ = step;
}

pickle::Tensor DeepSpeedRankFile::checked(const Value& value, size_t group) const {
  pickle::Tensor tensor = value.tensor();
  const int64_t padded = layout_.partition_numel(group);
  const int64_t used = layout_.used_numel(group, rank_);
  const bool flat = tensor.shape.size() == 1 || layout_.stage() == 0;
  if (!flat || (tensor.numel != padded && tensor.numel != used)) {
    value.throw_unexpected(
        fmt::format("a tensor of {} elements (from param_shapes and {} ranks)", padded, layout_.ranks()));
  }
  archive_->check(tensor);
  return tensor;
}

void DeepSpeedRankFile::read(size_t group, StateKind kind, int64_t offset, std::span<float> out) {
  const std::optional<pickle::Tensor>& tensor = groups_[group][static_cast<size_t>(kind)];
  if (tensor) {
    archive_->read(*tensor, offset, out);
    return;
  }
  if (step_.value_or(0) != 0) {
    throw_user_error(
        "{} has no {} after {} updates: it was saved without optimizer states; convert it with zero_to_fp32 and pass "
        "the result as --init_from",
        archive_->path().string(), name_of(kind), *step_);
  }
  std::fill(out.begin(), out.end(), 0.0F);
}

std::string shared_settings(const std::vector<DeepSpeedParamGroup>& groups) {
  nlohmann::json settings = nlohmann::json::object();
  const auto add = [&](const char* key, auto member) {
    const auto& value = groups[0].*member;
    const bool same = std::all_of(groups.begin(), groups.end(),
                                  [&](const DeepSpeedParamGroup& group) { return group.*member == value; });
    if (same && value) settings[key] = *value;
  };
  if (!groups.empty()) {
    add("beta1", &DeepSpeedParamGroup::beta1);
    add("beta2", &DeepSpeedParamGroup::beta2);
    add("eps", &DeepSpeedParamGroup::eps);
    add("weight_decay", &DeepSpeedParamGroup::weight_decay);
    add("bias_correction", &DeepSpeedParamGroup::bias_correction);
  }
  return settings.dump();
}

}  // namespace mpzero::io
