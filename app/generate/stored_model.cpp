#include "app/generate/stored_model.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/stable_read.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/safetensors.hpp"
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

void read_safetensors(const ModelRequest& request, const Use& use, const Say& say) {
  if (request.untrained) {
    throw_user_error(
        "--untrained: {} is no checkpoint of mpzero, which records the seed of its first weights; leave the flag out.",
        request.folder.string());
  }
  const fs::path file = request.model_config.empty() ? request.folder / "config.json" : fs::path(request.model_config);
  if (request.model_config.empty() && !io::path_exists(file)) {
    throw_user_error("{} holds weights and no config.json; copy the model's config.json there, or give --model_config.",
                     request.folder.string());
  }
  const io::SafetensorsSource weights(request.folder);
  for (const std::string& warning : weights.warnings()) say(warning);
  StoredModel model{.name = request.folder.string(),
                    .config = parse_config(io::read_text_file(file, kMaxConfigBytes), file.string()),
                    .tokenizer = ""};
  for (const UnitSpec& unit : model_units(model.config)) {
    for (const ParameterSpec& parameter : unit.parameters) weights.check(parameter);
  }
  if (io::holds_tokenizer(request.folder)) model.tokenizer = request.folder.string();
  use(model, weights);
}

// The tokenizer that the checkpoint's run was trained with, as far as it is recorded.
std::string tokenizer_of(const io::StoredCheckpoint& checkpoint) {
  std::string recorded = io::recorded_tokenizer(checkpoint);
  if (recorded == "bytes") return recorded;
  const fs::path folder = io::tokenizer_folder(checkpoint);
  return folder.empty() ? recorded : folder.string();
}

model::ModelConfig config_of(const io::StoredCheckpoint& checkpoint, const ModelRequest& request) {
  io::ExportOptions options;
  if (!request.model_config.empty()) {
    options.model_config_json = io::read_text_file(request.model_config, kMaxConfigBytes);
  }
  const std::string text = io::exported_config(checkpoint, options);
  if (text.empty()) {
    throw_user_error(
        "{} records no config.json, as DeepSpeed's checkpoints do not; give the model's with --model_config.",
        checkpoint.folder().string());
  }
  const model::ModelConfig config = parse_config(
      text, request.model_config.empty() ? checkpoint.folder().string() + ", config.json" : request.model_config);
  io::check_same_parameters(checkpoint.parameters(), model_units(config), checkpoint.folder());
  return config;
}

void read_untrained(const io::StoredCheckpoint& checkpoint, StoredModel model, const Use& use) {
  if (!checkpoint.made_by_mpzero()) {
    throw_user_error("--untrained: {} was saved by DeepSpeed, which records no seed; leave the flag out.",
                     checkpoint.folder().string());
  }
  if (!checkpoint.run().init_from.empty()) {
    throw_user_error("--untrained: the run of {} began with the weights in {}; name that folder instead.",
                     checkpoint.folder().string(), checkpoint.run().init_from);
  }
  model.name = fmt::format("step 0 of the run of {}", checkpoint.folder().string());
  use(model, model::RandomInitializer(checkpoint.progress().seed, model.config.initializer_range, /*threads=*/1));
}

void use_checkpoint(const io::StoredCheckpoint& checkpoint, const ModelRequest& request, const Use& use,
                    const Say& say) {
  for (const std::string& warning : checkpoint.warnings()) say(warning);
  const StoredModel model{
      .name = fmt::format("step {} of {}", checkpoint.progress().step, checkpoint.folder().string()),
      .config = config_of(checkpoint, request),
      .tokenizer = tokenizer_of(checkpoint)};
  if (request.untrained) return read_untrained(checkpoint, model, use);
  use(model, io::StoredWeights(checkpoint));
  SingleProcess alone;
  checkpoint.verify_what_was_read(alone);
}

// What zero_to_fp32 writes on request, and is not read here.
void refuse_other_exports(const fs::path& folder) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.h5"}) {
    if (!io::path_exists(folder / name)) continue;
    throw_user_error(
        "{} holds weights as {}, which are not read; give a checkpoint, or safetensors, as zero_to_fp32 "
        "writes them without --format.",
        folder.string(), name);
  }
}

}  // namespace

void read_model(const ModelRequest& request, const Use& use, const Say& say) {
  if (request.tag.empty() && io::is_folder(request.folder)) {
    if (io::has_safetensors(request.folder)) return read_safetensors(request, use, say);
    refuse_other_exports(request.folder);
  }
  io::read_checkpoint([&] { return io::find_checkpoint(request.folder, request.tag); },
                      [&](const io::StoredCheckpoint& checkpoint) { use_checkpoint(checkpoint, request, use, say); },
                      say);
}

}  // namespace mpzero
