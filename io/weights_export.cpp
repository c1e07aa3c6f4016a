#include "io/weights_export.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"
#include "io/parameter_stream.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr const char* kConfigName = "config.json";
constexpr const char* kHdf5Name = "model.h5";
constexpr const char* kStagingName = ".zero_to_fp32.tmp";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

std::vector<ParameterSpec> parameters_of(const CheckpointReader& checkpoint) {
  std::vector<ParameterSpec> all;
  for (const UnitSpec& unit : checkpoint.units()) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

std::vector<std::string> write_hdf5(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                    const ParameterSource& source, const OnWritten& on_written) {
  const fs::path path = folder / kHdf5Name;
  hdf5::File layout = hdf5::File::create(path);
  std::vector<Destination> destinations;
  for (const ParameterSpec& parameter : parameters) {
    const std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
    destinations.push_back({&parameter, nullptr, layout.reserve_dataset<float>(parameter.name, shape)});
  }
  layout.close();
  File file = File::open_for_update(path);
  for (Destination& destination : destinations) destination.file = &file;
  stream_parameters(destinations, source, on_written);
  file.sync();
  return {kHdf5Name};
}

// Whether an earlier export of this format left `name`.
bool belongs_to(WeightsFormat format, std::string_view name) {
  if (format == WeightsFormat::kHdf5) return name == kHdf5Name;
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

}  // namespace

std::string exported_config(const CheckpointReader& checkpoint) {
  json config = json::parse(checkpoint.progress().model_config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    throw_user_error("{} does not hold the model's config.json: use a checkpoint that mpzero train wrote",
                     checkpoint.folder().string());
  }
  config["dtype"] = "float32";
  config["torch_dtype"] = "float32";
  bool tied = true;
  for (const ParameterSpec& parameter : parameters_of(checkpoint)) {
    if (parameter.name == kHead) tied = false;
    if (parameter.name == kEmbedding) config["vocab_size"] = parameter.shape.at(0);
  }
  config["tie_word_embeddings"] = tied;
  if (!config.contains("architectures")) {
    if (config.value("model_type", "") == "llama") config["architectures"] = {"LlamaForCausalLM"};
    if (config.value("model_type", "") == "qwen3") config["architectures"] = {"Qwen3ForCausalLM"};
    if (config.value("model_type", "") == "qwen2") config["architectures"] = {"Qwen2ForCausalLM"};
  }
  return config.dump(2) + "\n";
}

std::vector<std::string> export_weights(const CheckpointReader& checkpoint, const fs::path& output,
                                        const ExportOptions& options) {
  const std::string config = exported_config(checkpoint);
  const std::vector<ParameterSpec> parameters = parameters_of(checkpoint);
  const CheckpointSource source(checkpoint);
  const Staging staging(output);
  std::vector<std::string> names =
      options.format == WeightsFormat::kHdf5
          ? write_hdf5(staging.path(), parameters, source, options.on_written)
          : write_safetensors(staging.path(), parameters, source, options.max_shard_bytes, options.on_written);
  write_text_file(staging.path() / kConfigName, config);
  names.emplace_back(kConfigName);
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
