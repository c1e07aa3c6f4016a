#include "io/weights/initial_folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hub/hub_cache.hpp"
#include "io/weights/folder_weights.hpp"
#include "io/weights/tokenizer_files.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(std::unique_ptr<StoredCheckpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)), weights_(*checkpoint_) {}

  std::vector<ParameterSpec> parameters() const override {
    const auto all = checkpoint_->parameters();
    return {all.begin(), all.end()};
  }
  std::span<const std::string> warnings() const override { return checkpoint_->warnings(); }
  void check(const ParameterSpec& parameter) const override {
    const auto all = checkpoint_->parameters();
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const ParameterSpec& stored) { return stored.name == parameter.name; });
    if (found == all.end()) {
      throw_user_error("tensor {} is missing in the checkpoint {}: give weights of the same model", parameter.name,
                       folder().string());
    }
    if (found->shape != parameter.shape) {
      throw_user_error(
          "tensor {} of the checkpoint {} has shape [{}], the model needs [{}]: give weights of the same model",
          parameter.name, folder().string(), fmt::join(found->shape, ", "), fmt::join(parameter.shape, ", "));
    }
  }
  const fs::path& file_of(const ParameterSpec& parameter) const override {
    check(parameter);
    return folder();
  }
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override {
    weights_.read(parameter, begin, out);
  }
  void verify_what_was_read(ProcessGroup& group) const override { checkpoint_->verify_what_was_read(group); }

 private:
  const fs::path& folder() const { return checkpoint_->folder(); }

  std::unique_ptr<StoredCheckpoint> checkpoint_;
  StoredWeights weights_;
};

}  // namespace

fs::path weights_folder(const fs::path& given) {
  const fs::path folder = hub_snapshot_or(given);
  return folder == given || has_safetensors(folder) || has_other_weights(folder) ? folder : given;
}

InitialFolder find_initial_folder(const fs::path& given) {
  const fs::path folder = weights_folder(given);
  InitialFolder found;
  found.folder = folder;
  if (!is_folder(folder)) return found;
  if (!has_safetensors(folder)) {
    found.is_checkpoint = looks_like_checkpoint(folder);
    if (const auto latest = found.is_checkpoint ? std::nullopt : latest_checkpoint(folder)) {
      found.folder = *latest;
      found.is_checkpoint = found.is_latest = true;
    }
  }
  const auto warn = [&](const std::string& warning) { found.warnings.push_back(warning + "."); };
  if (found.is_checkpoint) {
    const auto checkpoint = open_checkpoint(found.folder);
    found.model_config_json = checkpoint->progress().model_config_json;
    found.eos_token_ids = more_eos_ids(*checkpoint, tokenizer_folder(*checkpoint, warn), warn);
    found.tokenizer_hash = recorded_tokenization(*checkpoint).tokenizer_hash;
  } else {
    try {
      found.eos_token_ids = generation_eos_ids(folder, kAnyVocabulary, warn);
      found.tokenizer_hash = tokenizer_hash_of(folder);
    } catch (const UserError& error) {
      found.problem = error.what();
    }
  }
  return found;
}

bool has_initial_weights(const fs::path& folder) {
  return has_safetensors(folder) || has_other_weights(folder) || looks_like_checkpoint(folder);
}

bool is_hugging_face_folder(const fs::path& folder) {
  if (!is_folder(folder)) return false;
  if (has_safetensors(folder)) return true;
  return has_other_weights(folder) && !looks_like_checkpoint(folder) && !latest_checkpoint(folder);
}

std::unique_ptr<WeightSource> open_initial_weights(const fs::path& folder) {
  if (!has_safetensors(folder) && looks_like_checkpoint(folder)) {
    return std::make_unique<CheckpointWeights>(open_checkpoint(folder));
  }
  return std::make_unique<FolderWeights>(folder);
}

}  // namespace mpzero::io
