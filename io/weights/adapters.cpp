#include "io/weights/adapters.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/matched_weights.hpp"
#include "io/weights/safetensors.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr const char* kTensorsStem = "adapter_model";
constexpr const char* kLoraKey = "mpzero_lora";  // of a checkpoint's config.json
constexpr std::string_view kPeftPrefix = "base_model.model.";

// Throws json::exception for a value that is missing or of another type.
AdapterSettings settings_from(const json& object) {
  return {.r = object.at("r").get<int64_t>(),
          .lora_alpha = object.at("lora_alpha").get<double>(),
          .target_modules = object.at("target_modules").get<std::vector<std::string>>(),
          .use_rslora = object.value("use_rslora", false)};
}

// Keys that change what adapters compute or what is trained, with the values that do not.
void refuse_other_methods(const json& config, const std::string& source) {
  const auto only = [&](const char* key, const std::vector<json>& plain) {
    const json value = config.value(key, json());
    if (value.is_null() || std::ranges::find(plain, value) != plain.end()) return;
    throw_user_error("{}: {} is {:.100}, which mpzero does not support: train plain LoRA adapters without it", source,
                     key, value.dump());
  };
  only("peft_type", {"LORA"});
  only("bias", {"none"});
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) only(key, {false});
  for (const char* key :
       {"modules_to_save", "layers_to_transform", "layers_pattern", "exclude_modules", "target_parameters",
        "trainable_token_indices", "layer_replication", "alora_invocation_tokens"}) {
    only(key, {json::array(), ""});
  }
  for (const char* key : {"rank_pattern", "alpha_pattern"}) only(key, {json::object()});
}

class PeftWeights final : public WeightSource {
 public:
  explicit PeftWeights(const fs::path& folder)
      : file_(open_weight_file(folder / fmt::format("{}.safetensors", kTensorsStem))) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> all;
    for (const auto& [name, tensor] : file_->tensors()) {
      if (!name.starts_with(kPeftPrefix)) {
        throw_user_error("{} holds {}, which is not a name of PEFT's ({}...); save the adapters with PEFT again",
                         file_->path().string(), name, kPeftPrefix);
      }
      all.push_back({name.substr(kPeftPrefix.size()), tensor.shape});
    }
    return all;
  }
  std::span<const std::string> warnings() const override { return {}; }
  void check(const ParameterSpec& parameter) const override {
    const auto found = file_->tensors().find(std::string(kPeftPrefix) + parameter.name);
    if (element_bytes(found->second.dtype) > 0) return;
    throw_user_error("tensor {} of {} has type {}, which cannot be read: convert it to F32, BF16 or F16", found->first,
                     file_->path().string(), found->second.dtype);
  }
  const fs::path& file_of(const ParameterSpec&) const override { return file_->path(); }
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    file_->read(std::string(kPeftPrefix) + parameter.name, begin, out);
  }

 private:
  std::unique_ptr<WeightFile> file_;
};

class CheckpointAdapters final : public WeightSource {
 public:
  explicit CheckpointAdapters(std::unique_ptr<StoredCheckpoint> checkpoint) : checkpoint_(std::move(checkpoint)) {}

  std::vector<ParameterSpec> parameters() const override {
    const auto all = checkpoint_->parameters();
    std::vector<ParameterSpec> adapters;
    std::ranges::copy_if(all, std::back_inserter(adapters),
                         [](const ParameterSpec& parameter) { return is_adapter(parameter.name); });
    return adapters;
  }
  std::span<const std::string> warnings() const override { return checkpoint_->warnings(); }
  void check(const ParameterSpec&) const override {}
  const fs::path& file_of(const ParameterSpec&) const override { return checkpoint_->folder(); }
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    checkpoint_->read(parameter.name, StateKind::kMaster, begin, out);
  }
  void verify_what_was_read(ProcessGroup& group) const override { checkpoint_->verify_what_was_read(group); }

 private:
  std::unique_ptr<StoredCheckpoint> checkpoint_;
};

std::string text_of(const ParameterSpec& parameter) {
  return fmt::format("{} [{}]", parameter.name, fmt::join(parameter.shape, ", "));
}

// Throws unless `stored` are the adapters of `units`.
void check_same_adapters(const std::vector<ParameterSpec>& stored, std::span<const UnitSpec> units,
                         const fs::path& folder) {
  std::vector<std::string> found, wanted;
  for (const ParameterSpec& parameter : stored) found.push_back(text_of(parameter));
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      if (is_adapter(parameter.name)) wanted.push_back(text_of(parameter));
    }
  }
  std::ranges::sort(found);
  std::ranges::sort(wanted);
  std::vector<std::string> lacks, unknown;
  std::ranges::set_difference(wanted, found, std::back_inserter(lacks));
  std::ranges::set_difference(found, wanted, std::back_inserter(unknown));
  if (!lacks.empty()) {
    throw_user_error("{} are adapters of another model: it lacks {}{}; give the base model that they were trained on",
                     folder.string(), lacks.front(), unknown.empty() ? "" : ", and has " + unknown.front());
  }
  if (!unknown.empty()) {
    throw_user_error(
        "{} are adapters of another model: it has {}, for which the model has no place; give the base "
        "model that they were trained on",
        folder.string(), unknown.front());
  }
}

std::vector<UnitSpec> base_unit(std::span<const ParameterSpec> parameters) {
  UnitSpec base{"base", {}};
  for (const ParameterSpec& parameter : parameters) {
    if (!is_adapter(parameter.name)) base.parameters.push_back({parameter.name, parameter.shape});
  }
  return {base};
}

// "model.layers.0.self_attn.q_proj" of a weight or an adapter of it.
std::string projection_of(std::string_view name, std::string_view end) {
  return std::string(name.substr(0, name.size() - end.size()));
}

}  // namespace

bool holds_peft_adapters(const fs::path& folder) { return path_exists(folder / kAdapterConfigName); }

PeftConfig read_peft_config(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfigName;
  const std::optional<std::string> text = read_json_text(path, kConfigurationLimits);
  if (!text) throw_user_error("{} cannot be read; give a folder that PEFT has saved", path.string());
  const json config = parse_user_json(*text, path.string(), kConfigurationLimits);
  if (!config.is_object())
    throw_user_error("{} holds no JSON object; give a folder that PEFT has saved", path.string());
  refuse_other_methods(config, path.string());
  try {
    const json base = config.value("base_model_name_or_path", json());
    return {.settings = settings_from(config),
            .base = base.is_string() ? base.get<std::string>() : "",
            .lora_dropout = config.value("lora_dropout", 0.0)};
  } catch (const json::exception&) {
    throw_user_error(
        "{}: r, lora_alpha and target_modules must be a rank, a number and a list of names; write them "
        "so",
        path.string());
  }
}

std::optional<AdapterSettings> adapters_of(const StoredCheckpoint& checkpoint) {
  if (!std::ranges::any_of(checkpoint.parameters(),
                           [](const ParameterSpec& parameter) { return is_adapter(parameter.name); })) {
    return std::nullopt;
  }
  const std::string source = checkpoint.folder().string() + ", config.json";
  try {
    return settings_from(
        parse_user_json(checkpoint.progress().model_config_json, source, kConfigurationLimits).at(kLoraKey));
  } catch (const json::exception& error) {
    throw_user_error("{} has adapters without their settings ({}); use a checkpoint that mpzero train wrote", source,
                     error.what());
  }
}

std::unique_ptr<WeightSource> open_adapters(const fs::path& folder, std::span<const UnitSpec> units) {
  std::unique_ptr<WeightSource> source;
  if (holds_peft_adapters(folder)) {
    source = std::make_unique<PeftWeights>(folder);
  } else {
    source = std::make_unique<CheckpointAdapters>(open_checkpoint(folder));
  }
  const std::vector<ParameterSpec> stored = source->parameters();
  check_same_adapters(stored, units, folder);
  for (const ParameterSpec& parameter : stored) source->check(parameter);
  return source;
}

CheckpointWithBase::CheckpointWithBase(const StoredCheckpoint& checkpoint, fs::path base, ProcessGroup& group)
    : checkpoint_(checkpoint) {
  const RunRecord& run = checkpoint.run();
  if (run.init_from_hash.empty() || !adapters_of(checkpoint)) return;
  const std::string recorded = run.init_from;
  if (base.empty()) base = recorded;
  const std::vector<UnitSpec> units = base_unit(checkpoint.parameters());
  run_on_all_ranks(group, [&] {
    if (!has_initial_weights(base)) {
      throw_user_error(
          "{} refers to its base {}, where there are no weights (xxh3 {}): name its folder with "
          "--base_model, or --init_from of mpzero train",
          checkpoint.folder().string(), base.string(), run.init_from_hash);
    }
    base_ = match_weights(open_initial_weights(base), units, base, TiedHead::kPassOver);
  });
  const std::string hash = hash_of(*base_, units, group);
  base_->verify_what_was_read(group);
  if (hash == run.init_from_hash) return;
  throw UserError(fmt::format("{} has adapters of the base {} (xxh3 {}), and {} has other weights now (xxh3 {}): give "
                              "the weights that they were trained on",
                              checkpoint.folder().string(), recorded, run.init_from_hash, base.string(), hash),
                  ErrorScope::kAllRanks);
}

const ParameterSpec& CheckpointWithBase::find(std::string_view parameter) const {
  const auto all = checkpoint_.parameters();
  const auto found = std::ranges::find(all, parameter, &ParameterSpec::name);
  if (found == all.end()) {
    throw_user_error("{} is a checkpoint of another model: it has no parameter {}", folder().string(), parameter);
  }
  return *found;
}

void CheckpointWithBase::read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const {
  if (base_ && !is_adapter(parameter)) {
    base_->read(find(parameter), begin, out);
  } else {
    checkpoint_.read(parameter, kind, begin, out);
  }
}

void CheckpointWithBase::read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const {
  if (base_) {
    StoredCheckpoint::read_unit(unit, kind, begin, out);
  } else {
    checkpoint_.read_unit(unit, kind, begin, out);
  }
}

void CheckpointWithBase::verify_what_was_read(ProcessGroup& group) const {
  checkpoint_.verify_what_was_read(group);
  if (base_) base_->verify_what_was_read(group);
}

MergedCheckpoint::MergedCheckpoint(const StoredCheckpoint& checkpoint, fs::path base, ProcessGroup& group)
    : CheckpointWithBase(checkpoint, std::move(base), group),
      progress_(checkpoint.progress()),
      parameters_(base_unit(checkpoint.parameters()).front().parameters) {
  const std::optional<AdapterSettings> settings = adapters_of(checkpoint);
  if (!settings) throw_user_error("{} has no adapters to merge: leave the format out", checkpoint.folder().string());
  const auto rank = static_cast<double>(settings->r);
  scale_ = settings->lora_alpha / (settings->use_rslora ? std::sqrt(rank) : rank);
  json config = json::parse(progress_.model_config_json);
  config.erase(kLoraKey);
  progress_.model_config_json = config.dump(2) + "\n";
}

void MergedCheckpoint::read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const {
  constexpr std::string_view kWeight = ".weight";
  CheckpointWithBase::read(parameter, kind, begin, out);
  const std::string projection = projection_of(parameter, kWeight);
  const auto all = CheckpointWithBase::parameters();
  const auto found = std::ranges::find(all, projection + kLoraA, &ParameterSpec::name);
  if (found == all.end()) return;
  const ParameterSpec& a = *found;
  const ParameterSpec& b = find(projection + kLoraB);
  const int64_t r = a.shape[0], in = a.shape[1], end = begin + static_cast<int64_t>(out.size());
  const int64_t first_row = begin / in, rows = (end + in - 1) / in - first_row;
  std::vector<float> a_values(static_cast<size_t>(a.numel())), b_values(static_cast<size_t>(rows * r));
  CheckpointWithBase::read(a.name, kind, 0, a_values);
  CheckpointWithBase::read(b.name, kind, first_row * r, b_values);
  std::vector<float> row(static_cast<size_t>(in));
  for (int64_t i = 0; i < rows; ++i) {
    std::ranges::fill(row, 0.0F);
    for (int64_t k = 0; k < r; ++k) {
      const float factor = b_values[static_cast<size_t>(i * r + k)];
      const float* const of_a = a_values.data() + k * in;
      for (int64_t j = 0; j < in; ++j) row[static_cast<size_t>(j)] += factor * of_a[j];
    }
    const int64_t row_begin = (first_row + i) * in;
    for (int64_t j = std::max(begin, row_begin); j < std::min(end, row_begin + in); ++j) {
      out[static_cast<size_t>(j - begin)] += static_cast<float>(scale_) * row[static_cast<size_t>(j - row_begin)];
    }
  }
}

namespace {

// Adapters under PEFT's names.
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

std::vector<std::string> export_adapters(const StoredCheckpoint& checkpoint, const fs::path& output, WeightType type) {
  const std::optional<AdapterSettings> settings = adapters_of(checkpoint);
  if (!settings) throw_user_error("{} has no adapters to write: leave the format out", checkpoint.folder().string());
  std::vector<ParameterSpec> parameters;
  for (const ParameterSpec& parameter : checkpoint.parameters()) {
    if (is_adapter(parameter.name)) parameters.push_back({std::string(kPeftPrefix) + parameter.name, parameter.shape});
  }
  const std::string& base = checkpoint.run().init_from;
  // Few keys: an older PEFT refuses those that it does not know.
  const json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base.empty() ? json() : json(base)},
                       {"r", settings->r},
                       {"lora_alpha", settings->lora_alpha},
                       {"lora_dropout", 0.0},
                       {"target_modules", settings->target_modules},
                       {"bias", "none"},
                       {"use_rslora", settings->use_rslora},
                       {"fan_in_fan_out", false},
                       {"init_lora_weights", true},
                       {"modules_to_save", nullptr},
                       {"inference_mode", true}};
  make_folders(output, disk());
  // PEFT finds nothing without the settings, which come last.
  const fs::path settings_file = output / kAdapterConfigName;
  if (const int error = disk().remove_file(settings_file); error != 0 && error != ENOENT) {
    throw_system_error("remove", settings_file, error);
  }
  std::vector<std::string> files = write_safetensors(
      output, parameters, AsPeft(checkpoint), std::numeric_limits<int64_t>::max(), nullptr, type, disk(), kTensorsStem);
  SingleProcess alone;
  checkpoint.verify_what_was_read(alone);
  replace_text_file(settings_file, config.dump(2) + "\n");
  files.emplace_back(kAdapterConfigName);
  return files;
}

}  // namespace mpzero::io
