#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/zip_reader.hpp"

namespace mpzero::io {

// The hyperparameters of one of torch's parameter groups, if the file has them.
struct DeepSpeedParamGroup {
  std::optional<double> lr;
  std::optional<double> weight_decay;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> eps;
  std::optional<bool> bias_correction;
};

// The hyperparameters that are equal in all groups, as JSON; see TrainingProgress::settings_json.
std::string shared_settings(const std::vector<DeepSpeedParamGroup>& groups);

// One rank's optimizer states: its optimizer file or, without ZeRO, the model file. Checks that the tensors have the
// lengths that the layout requires.
class DeepSpeedRankFile {
 public:
  DeepSpeedRankFile(std::unique_ptr<TorchZipReader> archive, const DeepSpeedLayout& layout, int rank);

  // Reads elements [offset, offset + out.size()) of this rank's partition of a group.
  void read(size_t group, StateKind kind, int64_t offset, std::span<float> out);

  TorchZipReader& archive() { return *archive_; }
  const std::vector<DeepSpeedParamGroup>& param_groups() const { return param_groups_; }
  // AdamW's count of updates, the same for all groups. std::nullopt if the file holds no AdamW state.
  std::optional<int64_t> optimizer_step() const { return step_; }

 private:
  using States = std::array<std::optional<pickle::Tensor>, 3>;  // by StateKind; no moments before the first update

  void read_groups(const std::vector<pickle::Value>& masters, const pickle::Value& optimizer,
                   const std::optional<pickle::Value>& elastic_step);
  void read_moments(const pickle::Value& optimizer, const std::optional<pickle::Value>& elastic_step, size_t group);
  int64_t step_in(const pickle::Value& value);
  void set_step(const pickle::Value& owner, int64_t step);
  pickle::Tensor checked(const pickle::Value& value, size_t group) const;

  std::unique_ptr<TorchZipReader> archive_;
  const DeepSpeedLayout& layout_;
  int rank_;
  std::vector<States> groups_;
  std::vector<DeepSpeedParamGroup> param_groups_;
  std::optional<int64_t> step_;
};

// Properties of the full checkpoint, as recorded in an optimizer file.
struct DeepSpeedPartition {
  int stage = 0;
  int64_t ranks = 0;
  std::vector<std::vector<int64_t>> paddings;  // DeepSpeedLayout::Group::paddings of each group; may be empty
};
DeepSpeedPartition read_deepspeed_partition(const TorchZipReader& archive);

}  // namespace mpzero::io
