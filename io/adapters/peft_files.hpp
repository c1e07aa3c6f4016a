#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_spec.hpp"
#include "base/weight_source.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/weights/export_folder.hpp"
#include "io/weights/weights_export.hpp"

namespace mpzero::io {

// Opens the adapters of a PEFT folder or a checkpoint under names such as
// "model.layers.0.self_attn.q_proj.lora_A.weight". Throws UserError if names or shapes differ from those in `units`.
std::unique_ptr<WeightSource> open_adapters(const std::filesystem::path& folder, std::span<const UnitSpec> units);

// Reads LoRA matrices from `adapters` and all other parameters from `base`.
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

// Writes a checkpoint's adapters in PEFT's format: adapter_model.safetensors and adapter_config.json. Like
// export_weights(), replaces an existing export of any format. Throws UserError if the checkpoint has no adapters.
Exported export_adapters(const StoredCheckpoint& checkpoint, const std::filesystem::path& output, WeightType type);

}  // namespace mpzero::io
