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

// Hyperparameters of one torch.optim parameter group. Missing entries are std::nullopt.
struct DeepSpeedParamGroup {
  std::optional<double> lr;
  std::optional<double> weight_decay;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> eps;
  std::optional<bool> bias_correction;
};

// Returns the hyperparameters that are equal in all groups, as JSON for TrainingProgress::settings_json.
std::string shared_settings(const std::vector<DeepSpeedParamGroup>& groups);

// Optimizer states of one rank, from its optimizer file or, without ZeRO, from the model file. The constructor checks
// the tensor lengths against the layout.
class DeepSpeedRankFile {
 public:
  DeepSpeedRankFile(std::unique_ptr<TorchZipReader> archive, const DeepSpeedLayout& layout, int rank);

  // Reads elements [offset, offset + out.size()) of this rank's partition of a group.
  void read(size_t group, StateKind kind, int64_t offset, std::span<float> out);

  TorchZipReader& archive() { return *archive_; }
  const std::vector<DeepSpeedParamGroup>& param_groups() const { return param_groups_; }
  // Returns the AdamW step count, which is equal for all groups, or std::nullopt if the file contains no AdamW state.
  std::optional<int64_t> optimizer_step() const { return step_; }

 private:
  using States =
      std::array<std::optional<pickle::Tensor>, 3>;  // by StateKind; moments are missing before the first update

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

// Properties of the whole checkpoint that each optimizer file records.
struct DeepSpeedPartition {
  int stage = 0;
  int64_t ranks = 0;
  std::vector<std::vector<int64_t>> paddings;  // DeepSpeedLayout::Group::paddings per group; may be empty
};
DeepSpeedPartition read_deepspeed_partition(const TorchZipReader& archive);

}  // namespace mpzero::io
