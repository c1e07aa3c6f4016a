#include "io/weights_export.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"
#include "io/safetensors.hpp"
#include "io/torch_weights.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kHdf5Name = "model.h5";
constexpr const char* kStagingName = ".zero_to_fp32.tmp";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

std::vector<std::string> write_hdf5(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                    const ParameterSource& source, const OnWritten& on_written) {
  const fs::path path = folder / kHdf5Name;
  hdf5::File layout = hdf5::File::create(path);
  std::vector<Destination> destinations;
  for (const ParameterSpec& parameter : parameters) {
    const std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
    destinations.push_back({&parameter, nullptr, layout.reserve_dataset<float>(parameter.name, shape), nullptr});
  }
  layout.close();
  File file = File::open_for_update(path);
  for (Destination& destination : destinations) destination.file = &file;
  stream_parameters(destinations, source, WeightType::kFloat32, on_written);
  file.sync();
  return {kHdf5Name};
}

// Whether an earlier export of this format left `name`.
bool belongs_to(WeightsFormat format, std::string_view name) {
  if (format == WeightsFormat::kHdf5) return name == kHdf5Name;
  if (format == WeightsFormat::kTorch) {
    return name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"));
  }
  return name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

void remove_former_export(const fs::path& output, WeightsFormat format) {
  fs::remove(output / kConfigName);
  std::vector<fs::path> former;
  for (const auto& entry : fs::directory_iterator(output)) {
    if (entry.is_regular_file() && belongs_to(format, entry.path().filename().string())) former.push_back(entry.path());
  }
  for (const fs::path& path : former) fs::remove(path);
}

// Removes what a failed export leaves: the staging folder, and `output` if that was made for it.
class Staging {
 public:
  explicit Staging(const fs::path& output) : output_(output), made_output_(!fs::exists(output)) {
    make_folders(output);
    remove_folder(path());
    make_folders(path());
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path(), ignored);
    if (made_output_) fs::remove(output_, ignored);  // only if it is empty
  }
  fs::path path() const { return output_ / kStagingName; }

 private:
  fs::path output_;
  bool made_output_;
};

bool contains(std::span<const ParameterSpec> parameters, std::string_view name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const ParameterSpec& parameter) { return parameter.name == name; });
}

// Weights under two names. An HDF5 checkpoint does not list them: the head is the only one that can be tied.
std::vector<StoredCheckpoint::Alias> aliases_of(const StoredCheckpoint& checkpoint) {
  const auto listed = checkpoint.aliases();
  if (!listed.empty()) return {listed.begin(), listed.end()};
  if (contains(checkpoint.parameters(), kHead) || !contains(checkpoint.parameters(), kEmbedding)) return {};
  return {{kHead, kEmbedding}};
}

std::vector<std::string> write_weights(const fs::path& folder, const StoredCheckpoint& checkpoint,
                                       const ExportOptions& options) {
  const StoredWeights source(checkpoint);
  const auto parameters = checkpoint.parameters();
  switch (options.format) {
    case WeightsFormat::kSafetensors:
      return write_safetensors(folder, parameters, source, options.max_shard_bytes, options.on_written, options.type);
    case WeightsFormat::kTorch:
      return write_torch_weights(folder, parameters, aliases_of(checkpoint), source, options.max_shard_bytes,
                                 options.type, options.on_written);
    case WeightsFormat::kHdf5:
      return write_hdf5(folder, parameters, source, options.on_written);
  }
  return {};
}

}  // namespace

std::string exported_config(const StoredCheckpoint& checkpoint, const ExportOptions& options) {
  const bool given = !options.model_config_json.empty();
  const std::string& text = given ? options.model_config_json : checkpoint.progress().model_config_json;
  if (text.empty()) return "";
  const std::string source = given ? "--model_config" : checkpoint.folder().string();
  json config = parse_user_json(text, fmt::format("{}, config.json", source), kConfigurationLimits);
  if (!config.is_object()) {
    throw_user_error("{} is no config.json of a model: {}", source,
                     given ? "give the file of transformers" : "use a checkpoint that mpzero train wrote");
  }
  const char* dtype = options.type == WeightType::kFloat32 ? "float32" : "bfloat16";
  config["dtype"] = dtype;
  config["torch_dtype"] = dtype;
  config["tie_word_embeddings"] = !contains(checkpoint.parameters(), kHead);
  for (const ParameterSpec& parameter : checkpoint.parameters()) {
    if (parameter.name == kEmbedding) config["vocab_size"] = parameter.shape.at(0);
  }
  if (!config.contains("architectures")) {
    const std::string model_type = config.value("model_type", "");
    if (model_type == "llama") config["architectures"] = {"LlamaForCausalLM"};
    if (model_type == "qwen3") config["architectures"] = {"Qwen3ForCausalLM"};
    if (model_type == "qwen2") config["architectures"] = {"Qwen2ForCausalLM"};
  }
  return config.dump(2) + "\n";
}

std::vector<std::string> export_weights(const StoredCheckpoint& checkpoint, const fs::path& output,
                                        const ExportOptions& options) {
  const std::string config = exported_config(checkpoint, options);
  const Staging staging(output);
  std::vector<std::string> names = write_weights(staging.path(), checkpoint, options);
  SingleProcess alone;
  checkpoint.verify_what_was_read(alone);
  if (!config.empty()) {
    write_text_file(staging.path() / kConfigName, config);
    names.emplace_back(kConfigName);
  }
  try {
    remove_former_export(output, options.format);
  } catch (const fs::filesystem_error& error) {
    throw_system_error("replace the export in", output, error.code().value());
  }
  for (const std::string& name : names) {
    if (name == kConfigName) sync_folder(output);
    rename_path(staging.path() / name, output / name);
  }
  sync_folder(output);
  return names;
}

}  // namespace mpzero::io
