#include "app/generate/stored_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/config_keys.hpp"
#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/adapters/checkpoint_with_base.hpp"
#include "io/adapters/peft_files.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/data/tokenization.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hub/hub_cache.hpp"
#include "io/peft/peft_config.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/matched_weights.hpp"
#include "io/weights/tokenizer_files.hpp"
#include "io/weights/weights_export.hpp"
#include "model/initializer.hpp"

namespace mpzero {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

using Use = std::function<void(const StoredModel&, const ParameterSource&)>;
using Say = std::function<void(const std::string&)>;

model::ModelConfig parse_config(const std::string& text, const std::string& source) {
  model::ModelConfig config = model::ModelConfig::from_json(text, source);
  config.validate(source);
  return config;
}

void append_new(std::vector<int64_t>& ids, const std::vector<int64_t>& more) {
  for (const int64_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

// Returns the folder if it contains a tokenizer, else the tokenizer that an export recorded in its config.json.
std::string tokenizer_of(const fs::path& folder, const std::string& config_json) {
  if (io::holds_tokenizer(folder)) return folder.string();
  const nlohmann::json config = nlohmann::json::parse(config_json);
  const auto found = config.find(kExportedTokenizer);
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

// Throws UserError if --base_model is set. `folder`: a folder of weights without a base model.
void refuse_base_model(const ModelRequest& request, const fs::path& folder) {
  if (request.base_model.empty()) return;
  throw_user_error("--base_model {}: {} needs no base model; omit the flag.", request.base_model, folder.string());
}

// Reads PEFT adapters and their base.
void read_adapters(const ModelRequest& request, const Use& use, const Say& say) {
  const io::InitialFolder base = io::find_initial_folder(request.folder, request.base_model);
  for (const std::string& warning : base.warnings) say(warning);
  const fs::path file = base.folder / "config.json";
  const std::string text = base.is_checkpoint ? base.model_config_json : io::read_text_file(file, kMaxConfigBytes);
  StoredModel model{
      .name = request.folder.string(),
      .config = parse_config(text, base.is_checkpoint ? base.folder.string() + ", config.json" : file.string()),
      .tokenizer = tokenizer_of(base.folder, text)};
  append_new(model.config.eos_token_ids, base.eos_token_ids);
  const auto weights = io::match_weights(io::open_initial_weights(base.folder), model_units(model.config), base.folder);
  model.config.lora = base.adapter_settings;
  model.config.validate((request.folder / io::kAdapterConfigName).string());
  const auto adapters = io::open_adapters(request.folder, model_units(model.config));
  if (io::holds_tokenizer(request.folder)) model.tokenizer = request.folder.string();
  use(model, io::WithAdapters(*weights, *adapters));
  SingleProcess alone;
  weights->verify_what_was_read(alone);
}

void read_folder(const ModelRequest& request, const Use& use, const Say& say) {
  if (request.untrained) {
    throw_user_error("--untrained: {} is not an mpzero checkpoint and has no seed; omit the flag.",
                     request.folder.string());
  }
  refuse_base_model(request, request.folder);
  auto source = std::make_unique<io::FolderWeights>(request.folder);
  const fs::path file = request.model_config.empty() ? request.folder / "config.json" : fs::path(request.model_config);
  if (request.model_config.empty() && !io::path_exists(file)) {
    throw_user_error("{} contains weights but no config.json; add config.json, or pass --model_config.",
                     request.folder.string());
  }
  const std::string text = io::read_text_file(file, kMaxConfigBytes);
  StoredModel model{.name = request.folder.string(),
                    .config = parse_config(text, file.string()),
                    .tokenizer = tokenizer_of(request.folder, text)};
  append_new(model.config.eos_token_ids, io::generation_eos_ids(request.folder, model.config.vocab_size, say));
  const auto weights = io::match_weights(std::move(source), model_units(model.config), request.folder);
  for (const std::string& warning : weights->warnings()) say(warning);
  use(model, *weights);
  SingleProcess alone;
  weights->verify_what_was_read(alone);
}

// `tokenizer`: the tokenizer's folder; may be empty.
model::ModelConfig config_of(const io::StoredCheckpoint& checkpoint, const ModelRequest& request,
                             const fs::path& tokenizer, const Say& say) {
  io::ExportOptions options;
  if (!request.model_config.empty()) {
    options.model_config_json = io::read_text_file(request.model_config, kMaxConfigBytes);
  }
  options.eos_token_ids = io::more_eos_ids(checkpoint, tokenizer, say);
  const io::Tokenization tokens = io::recorded_tokenization(checkpoint);
  if (tokens.add_bos.value_or(false)) options.bos_token_id = tokens.bos_token_id;
  const std::string text = io::exported_config(checkpoint, options);
  if (text.empty()) {
    throw_user_error("{} has no config.json, like all DeepSpeed checkpoints; pass --model_config.",
                     checkpoint.folder().string());
  }
  const model::ModelConfig config = parse_config(
      text, request.model_config.empty() ? checkpoint.folder().string() + ", config.json" : request.model_config);
  io::check_same_parameters(checkpoint.parameters(), model_units(config), checkpoint.folder());
  return config;
}

void read_untrained(const io::StoredCheckpoint& checkpoint, StoredModel model, const Use& use) {
  if (!checkpoint.made_by_mpzero()) {
    throw_user_error("--untrained: {} was saved by DeepSpeed, which does not record the seed; omit the flag.",
                     checkpoint.folder().string());
  }
  if (!checkpoint.run().init_from.empty()) {
    throw_user_error("--untrained: the run of {} started from the weights in {}; pass that folder instead.",
                     checkpoint.folder().string(), checkpoint.run().init_from);
  }
  model.name = fmt::format("step 0 of the run of {}", checkpoint.folder().string());
  use(model, model::RandomInitializer(checkpoint.progress().seed, model.config, /*threads=*/1));
}

void use_checkpoint(const io::StoredCheckpoint& checkpoint, const ModelRequest& request, const Use& use,
                    const Say& say) {
  if (!io::adapters_of(checkpoint) || checkpoint.run().init_from_hash.empty()) {
    refuse_base_model(request, checkpoint.folder());
  }
  for (const std::string& warning : checkpoint.warnings()) say(warning);
  const fs::path tokenizer = io::tokenizer_folder(checkpoint, say);
  const io::Tokenization tokens = io::recorded_tokenization(checkpoint);
  const StoredModel model{
      .name = fmt::format("step {} of {}", checkpoint.progress().step, checkpoint.folder().string()),
      .config = config_of(checkpoint, request, tokenizer, say),
      .tokenizer = tokenizer.empty() ? io::recorded_tokenizer(checkpoint) : tokenizer.string(),
      .chat_template = tokens.chat_template,
      .add_bos = tokens.add_bos};
  if (request.untrained) return read_untrained(checkpoint, model, use);
  SingleProcess alone;
  const io::CheckpointWithBase whole(checkpoint, io::weights_folder(request.base_model), alone);
  use(model, whole);
  whole.verify_what_was_read(alone);
}

}  // namespace

void read_model(const ModelRequest& given, const Use& use, const Say& say) {
  ModelRequest request = given;
  request.folder = io::weights_folder(given.folder);
  if (io::is_hub_name(request.folder.native()) && !io::path_exists(request.folder)) {
    throw_user_error("{}: {}.", request.folder.string(), io::explain_missing_weights(request.folder));
  }
  if (request.tag.empty() && io::is_peft_folder(request.folder)) return read_adapters(request, use, say);
  if (request.tag.empty() && io::is_hugging_face_folder(request.folder)) return read_folder(request, use, say);
  io::read_checkpoint([&] { return io::find_checkpoint(request.folder, request.tag); },
                      [&](const io::StoredCheckpoint& checkpoint) { use_checkpoint(checkpoint, request, use, say); },
                      say);
}

}  // namespace mpzero
