#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parameter_spec.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/weight_source.hpp"

// Low-rank adapters in files: those of PEFT, and checkpoints that hold adapters and refer to their base by its hash.
namespace mpzero::io {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";

// As adapter_config.json has them.
struct AdapterSettings {
  int64_t r = 0;
  double lora_alpha = 0;
  std::vector<std::string> target_modules;
  bool use_rslora = false;
};

// An adapter_config.json and the base that it names, which may be empty. Throws UserError, naming file and key, for
// what is not plain LoRA of projections (DoRA, other ranks for some layers, modules that are trained whole).
struct PeftConfig {
  AdapterSettings settings;
  std::string base;
  double lora_dropout = 0;
};
bool holds_peft_adapters(const std::filesystem::path& folder);
PeftConfig read_peft_config(const std::filesystem::path& folder);

// The adapters of a checkpoint; std::nullopt: it has none.
std::optional<AdapterSettings> adapters_of(const StoredCheckpoint& checkpoint);

// The adapters in a folder of PEFT or a checkpoint, under the model's names ("model.layers.0.self_attn.q_proj.lora_A.
// weight"). Throws UserError unless they are those of `units`, with their shapes.
std::unique_ptr<WeightSource> open_adapters(const std::filesystem::path& folder, std::span<const UnitSpec> units);

// A checkpoint with all weights: where it refers to its base, they are read there, and the others are its own.
class CheckpointWithBase : public StoredCheckpoint {
 public:
  // `base`: the folder of the base; empty: the one that the run recorded. Throws UserError where it holds other weights
  // than those with which the run began, naming folder and hashes. Collective. `checkpoint` must outlive this object.
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
  std::unique_ptr<WeightSource> base_;  // null: the checkpoint has all weights
};

// The same with the adapters merged: W + s B A in fp32, under the names of the base.
class MergedCheckpoint final : public CheckpointWithBase {
 public:
  // Throws UserError where the checkpoint has no adapters, and as CheckpointWithBase.
  MergedCheckpoint(const StoredCheckpoint& checkpoint, std::filesystem::path base, ProcessGroup& group);

  const TrainingProgress& progress() const override { return progress_; }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;

 private:
  double scale_ = 1;
  TrainingProgress progress_;  // with the base's config.json
  std::vector<ParameterSpec> parameters_;
};

// The weights of a base and adapters.
class WithAdapters final : public ParameterSource {
 public:
  WithAdapters(const ParameterSource& base, const ParameterSource& adapters) : base_(base), adapters_(adapters) {}
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    (is_adapter(parameter.name) ? adapters_ : base_).read(parameter, begin, out);
  }

 private:
  const ParameterSource& base_;
  const ParameterSource& adapters_;
};

// Writes the adapters of a checkpoint as PEFT does: adapter_model.safetensors and adapter_config.json, under PEFT's
// names. Returns the names of the files. Throws UserError where the checkpoint has none.
std::vector<std::string> export_adapters(const StoredCheckpoint& checkpoint, const std::filesystem::path& output,
                                         WeightType type);

}  // namespace mpzero::io
