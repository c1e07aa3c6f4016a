#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/parameter_spec.hpp"
#include "base/weight_source.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero::io {

// A LoRA checkpoint combined with its base model, whose weights are read from the base folder.
class CheckpointWithBase final : public ParameterSource {
 public:
  // `base` is the folder of the base model. If `base` is empty, uses the folder that the run recorded. Throws UserError
  // if the base weights differ from the run's initial weights. `checkpoint` must outlive this object. Collective.
  CheckpointWithBase(const StoredCheckpoint& checkpoint, std::filesystem::path base, ProcessGroup& group);

  // See StoredCheckpoint. read() returns master weights.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;
  void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const;
  void verify_what_was_read(ProcessGroup& group) const;

 private:
  const StoredCheckpoint& checkpoint_;
  std::unique_ptr<WeightSource> base_;  // null if the checkpoint has all weights
};

// A checkpoint with merged adapters: W + s B A in fp32, under the parameter names of the base model. Has no moments.
class MergedCheckpoint final : public StoredCheckpoint {
 public:
  // Throws UserError if the checkpoint has no adapters. See CheckpointWithBase for other errors.
  MergedCheckpoint(const StoredCheckpoint& checkpoint, std::filesystem::path base, ProcessGroup& group);

  const std::filesystem::path& folder() const override { return checkpoint_.folder(); }
  const RunRecord& run() const override { return checkpoint_.run(); }
  const TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  std::span<const std::string> warnings() const override { return checkpoint_.warnings(); }
  void verify_what_was_read(ProcessGroup& group) const override { whole_.verify_what_was_read(group); }
  void verify() const override { checkpoint_.verify(); }

 private:
  void read_values(const ParameterSpec& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;

  const StoredCheckpoint& checkpoint_;
  CheckpointWithBase whole_;
  double scale_ = 1;
  TrainingProgress progress_;  // includes the config.json of the base model
  std::vector<ParameterSpec> parameters_;
};

}  // namespace mpzero::io
