#include "io/adapters/peft_files.hpp"

#include <fmt/ranges.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hub/hub_cache.hpp"
#include "io/peft/peft_config.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/safetensors.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.";

class PeftWeights final : public WeightSource {
 public:
  explicit PeftWeights(const fs::path& folder) : file_(open_weight_file(folder / kAdapterWeightsName)) {
    for (const auto& [name, tensor] : file_->tensors()) {
      if (!name.starts_with(kPeftPrefix)) {
        throw_user_error(
            "{} contains {}, which is not a PEFT parameter name ({}...); save the adapters with PEFT again",
            file_->path().string(), name, kPeftPrefix);
      }
      parameters_.push_back({name.substr(kPeftPrefix.size()), tensor.shape});
    }
  }

  std::span<const ParameterSpec> parameters() const override { return parameters_; }
  void check(const ParameterSpec& parameter) const override {
    const auto found = file_->tensors().find(std::string(kPeftPrefix) + parameter.name);
    if (element_bytes(found->second.dtype) > 0) return;
    throw_user_error("tensor {} of {} has the unsupported dtype {}; convert it to F32, BF16 or F16", found->first,
                     file_->path().string(), found->second.dtype);
  }
  const fs::path& file_of(const ParameterSpec&) const override { return file_->path(); }
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    file_->read(std::string(kPeftPrefix) + parameter.name, begin, out);
  }

 private:
  std::unique_ptr<WeightFile> file_;
  std::vector<ParameterSpec> parameters_;
};

// Throws UserError if the adapters in `stored` do not match those of `units`.
void check_same_adapters(const std::vector<ParameterSpec>& stored, std::span<const UnitSpec> units,
                         const fs::path& folder) {
  std::map<std::string, std::vector<int64_t>> wanted;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (is_adapter(parameter.name)) wanted.emplace(parameter.name, parameter.shape);
    }
  }
  for (const ParameterSpec& parameter : stored) {
    const auto& [name, shape] = std::tie(parameter.name, parameter.shape);
    const auto found = wanted.find(name);
    if (found == wanted.end() && !is_adapter(name)) {
      throw_user_error(
          "{} contains {}, which is a full weight, not an adapter; save only adapters (save_embedding_layers=False)",
          folder.string(), name);
    }
    if (found == wanted.end()) {
      throw_user_error(
          "{} contains {}, which matches neither the model nor the adapters' targets; pass the original base model, or "
          "correct target_modules",
          folder.string(), name);
    }
    if (found->second != shape) {
      throw_user_error(
          "{} contains adapters of a different model: {} has shape [{}], expected [{}]; use the original base model",
          folder.string(), name, fmt::join(shape, ", "), fmt::join(found->second, ", "));
    }
    wanted.erase(found);
  }
  if (wanted.empty()) return;
  throw_user_error(
      "{} lacks {} and {} more tensors: mpzero requires adapters in every layer; pass an adapter folder that "
      "covers all layers",
      folder.string(), wanted.begin()->first, wanted.size() - 1);
}

// Adapters under PEFT's parameter names.
class AsPeft final : public ParameterSource {
 public:
  explicit AsPeft(const StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {}
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    checkpoint_.read(parameter.name.substr(kPeftPrefix.size()), StateKind::kMaster, begin, out);
  }

 private:
  const StoredCheckpoint& checkpoint_;
};

}  // namespace

std::unique_ptr<WeightSource> open_adapters(const fs::path& folder, std::span<const UnitSpec> units) {
  const bool is_peft = holds_peft_adapters(folder);
  std::unique_ptr<WeightSource> source;
  if (is_peft) {
    source = std::make_unique<PeftWeights>(folder);
  } else {
    source = open_checkpoint(folder);
  }
  std::vector<ParameterSpec> stored;
  for (const ParameterSpec& parameter : source->parameters()) {
    if (is_peft || is_adapter(parameter.name)) stored.push_back(parameter);
  }
  check_same_adapters(stored, units, folder);
  for (const ParameterSpec& parameter : stored) source->check(parameter);
  return source;
}

Exported export_adapters(const StoredCheckpoint& checkpoint, const fs::path& output, WeightType type) {
  const std::optional<LoraConfig> settings = adapters_of(checkpoint);
  if (!settings) throw_user_error("{} has no adapters to write; omit --format", checkpoint.folder().string());
  std::vector<ParameterSpec> parameters;
  int64_t bytes = 0;
  for (const ParameterSpec& parameter : checkpoint.parameters()) {
    if (!is_adapter(parameter.name)) continue;
    parameters.push_back({std::string(kPeftPrefix) + parameter.name, parameter.shape});
    bytes += parameter.numel() * bytes_of(type);
  }
  const std::string& base = checkpoint.run().init_from;
  // Writes only basic keys because older versions of PEFT reject unknown keys.
  const std::string name = hub_name_of(base);
  json config = to_json(*settings);
  config.update({{"peft_type", "LORA"},
                 {"task_type", "CAUSAL_LM"},
                 {"base_model_name_or_path", base.empty() ? json() : json(name.empty() ? base : name)},
                 {"revision", name.empty() ? json() : json(fs::path(base).filename())},
                 {"bias", "none"},
                 {"fan_in_fan_out", false},
                 {"init_lora_weights", true},
                 {"modules_to_save", nullptr},
                 {"inference_mode", true}});
  std::map<std::string, std::string> metadata;
  if (!checkpoint.run().init_from_hash.empty()) metadata[kBaseHashKey] = checkpoint.run().init_from_hash;
  ExportFolder folder(output, disk());
  folder.check_room(bytes);
  Exported exported{
      .files = write_safetensors(folder.staging(), parameters, AsPeft(checkpoint), std::numeric_limits<int64_t>::max(),
                                 nullptr, type, disk(), fs::path(kAdapterWeightsName).stem(), metadata),
      .replaced = {}};
  SingleProcess alone;
  checkpoint.verify_what_was_read(alone);
  write_text_file(folder.staging() / kAdapterConfigName, config.dump(2) + "\n");
  exported.files.emplace_back(kAdapterConfigName);
  exported.replaced = folder.replace_former(exported.files);
  return exported;
}

}  // namespace mpzero::io
