#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/weight_source.hpp"

namespace mpzero::io {

// A LoRA checkpoint combined with its base model, whose weights are read from the base folder.
class CheckpointWithBase : public StoredCheckpoint {
 public:
  // `base` is the folder of the base model. If `base` is empty, uses the folder that the run recorded. Throws UserError
  // if the base weights differ from the run's initial weights. `checkpoint` must outlive this object. Collective.
  CheckpointWithBase(const StoredCheckpoint& checkpoint, std::filesystem::path base, ProcessGroup& group);

  const std::filesystem::path& folder() const override { return checkpoint_.folder(); }
  const RunRecord& run() const override { return checkpoint_.run(); }
  const TrainingProgress& progress() const override { return checkpoint_.progress(); }
  std::span<const ParameterSpec> parameters() const override { return checkpoint_.parameters(); }
  std::span<const Alias> aliases() const override { return checkpoint_.aliases(); }
  bool made_by_mpzero() const override { return checkpoint_.made_by_mpzero(); }
  std::optional<double> next_lr() const override { return checkpoint_.next_lr(); }
  std::span<const std::string> warnings() const override { return checkpoint_.warnings(); }
  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;
  void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const override;
  int64_t carrying_ranks() const override { return checkpoint_.carrying_ranks(); }
  std::optional<StoredCarried> carried(int rank, std::span<const CarriedValues> wanted) const override {
    return checkpoint_.carried(rank, wanted);
  }
  void verify_what_was_read(ProcessGroup& group) const override;
  void verify() const override { checkpoint_.verify(); }

 protected:
  const ParameterSpec& find(std::string_view parameter) const;

 private:
  const StoredCheckpoint& checkpoint_;
  std::unique_ptr<WeightSource> base_;  // null if the checkpoint has all weights
};

// A checkpoint with merged adapters: W + s B A in fp32, under the parameter names of the base model.
class MergedCheckpoint final : public CheckpointWithBase {
 public:
  // Throws UserError if the checkpoint has no adapters. See CheckpointWithBase for other errors.
  MergedCheckpoint(const StoredCheckpoint& checkpoint, std::filesystem::path base, ProcessGroup& group);

  const TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;

 private:
  double scale_ = 1;
  TrainingProgress progress_;  // includes the config.json of the base model
  std::vector<ParameterSpec> parameters_;
};

}  // namespace mpzero::io
