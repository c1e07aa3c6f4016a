#include "io/weights/weights_export.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/config_keys.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parameter_spec.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/weights/export_folder.hpp"
#include "io/weights/safetensors.hpp"
#include "io/weights/tokenizer_files.hpp"
#include "io/weights/torch_weights.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

std::vector<std::string> write_hdf5(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                    const ParameterSource& source, const OnWritten& on_written,
                                    FileSystem& file_system) {
  const fs::path path = folder / kHdf5Name;
  hdf5::File layout = hdf5::File::create(path);
  std::vector<Destination> destinations;
  for (const ParameterSpec& parameter : parameters) {
    const std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
    destinations.push_back({&parameter, nullptr, layout.reserve_dataset<float>(parameter.name, shape), nullptr});
  }
  layout.close();
  File file = File::open_for_update(path, file_system);
  for (Destination& destination : destinations) destination.file = &file;
  stream_parameters(destinations, source, WeightType::kFloat32, on_written);
  file.sync();
  return {kHdf5Name};
}

int64_t bytes_of_weights(const StoredCheckpoint& checkpoint, WeightType type) {
  int64_t bytes = 0;
  for (const ParameterSpec& parameter : checkpoint.parameters()) bytes += parameter.numel() * bytes_of(type);
  return bytes;
}

// Returns the aliases of a checkpoint. HDF5 checkpoints do not list aliases because only the head can be tied.
std::vector<StoredCheckpoint::Alias> aliases_of(const StoredCheckpoint& checkpoint) {
  const auto listed = checkpoint.aliases();
  if (!listed.empty()) return {listed.begin(), listed.end()};
  const auto parameters = checkpoint.parameters();
  if (!is_output_tied(parameters)) return {};
  return {{kOutputWeight, std::ranges::find_if(parameters, is_embedding, &ParameterSpec::name)->name}};
}

std::vector<std::string> write_weights(const fs::path& folder, const StoredCheckpoint& checkpoint,
                                       const ExportOptions& options, FileSystem& files) {
  const auto parameters = checkpoint.parameters();
  switch (options.format) {
    case WeightsFormat::kSafetensors:
      return write_safetensors(folder, parameters, checkpoint, options.max_shard_bytes, options.on_written,
                               options.type, files);
    case WeightsFormat::kTorch:
      return write_torch_weights(folder, parameters, aliases_of(checkpoint), checkpoint, options.max_shard_bytes,
                                 options.type, options.on_written, files);
    case WeightsFormat::kHdf5:
      return write_hdf5(folder, parameters, checkpoint, options.on_written, files);
  }
  return {};
}

// Writes a single id or a list of ids, as in transformers.
void join_eos_ids(json& config, std::span<const int64_t> more) {
  const json before = config.value(kEosKey, json());
  json ids = before.is_null() ? json::array() : before.is_array() ? before : json::array({before});
  for (const int64_t id : more) {
    if (std::find(ids.begin(), ids.end(), json(id)) == ids.end()) ids.push_back(id);
  }
  if (!ids.empty()) config[kEosKey] = ids.size() == 1 ? ids.front() : ids;
}

}  // namespace

std::string exported_config(const StoredCheckpoint& checkpoint, const ExportOptions& options) {
  const bool given = !options.model_config_json.empty();
  const std::string& text = given ? options.model_config_json : checkpoint.progress().model_config_json;
  if (text.empty()) return "";
  const std::string source = given ? "--model_config" : checkpoint.folder().string();
  json config = parse_user_json(text, fmt::format("{}, config.json", source), kConfigurationLimits);
  if (!config.is_object()) {
    throw_user_error("{} is not a model's config.json: {}", source,
                     given ? "use a config.json from transformers" : "use a checkpoint from mpzero train");
  }
  join_eos_ids(config, options.eos_token_ids);
  if (options.bos_token_id && config.value("bos_token_id", json()).is_null()) {
    config["bos_token_id"] = *options.bos_token_id;
  }
  config.erase(kExportedTokenizer);
  if (!options.tokenizer.empty()) config[kExportedTokenizer] = options.tokenizer;
  const char* dtype = options.type == WeightType::kFloat32 ? "float32" : "bfloat16";
  config["dtype"] = dtype;
  config["torch_dtype"] = dtype;
  config["tie_word_embeddings"] = !has_parameter(checkpoint.parameters(), kOutputWeight);
  for (const ParameterSpec& parameter : checkpoint.parameters()) {
    if (is_embedding(parameter.name)) config["vocab_size"] = parameter.shape.at(0);
  }
  if (!config.contains("architectures") && options.causal_lm_class) {
    const json model_type = config.value("model_type", json());
    const std::string name = options.causal_lm_class(model_type.is_string() ? model_type.get<std::string>() : "");
    if (!name.empty()) config["architectures"] = {name};
  }
  return config.dump(2) + "\n";
}

Exported export_weights(const StoredCheckpoint& checkpoint, const fs::path& output, const ExportOptions& options,
                        FileSystem& files) {
  const std::string config = exported_config(checkpoint, options);
  ExportFolder folder(output, files);
  folder.check_room(bytes_of_weights(checkpoint, options.type));
  Exported exported{.files = write_weights(folder.staging(), checkpoint, options, files), .replaced = {}};
  SingleProcess alone;
  checkpoint.verify_what_was_read(alone);
  if (!config.empty()) {
    write_text_file(folder.staging() / kConfigName, config, files);
    exported.files.emplace_back(kConfigName);
  }
  exported.replaced = folder.replace_former(exported.files);
  return exported;
}

}  // namespace mpzero::io
