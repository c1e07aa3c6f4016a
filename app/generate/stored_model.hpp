#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/parameter_source.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Selects a model and its weights.
struct ModelRequest {
  std::filesystem::path folder;  // a path, or the Hugging Face name of a cached model
  std::string tag{};             // checkpoint in the folder; empty: the folder itself, or `latest`
  std::string base_model{};      // base of adapters; empty: the recorded base
  std::string model_config{};    // path; empty: the folder's config.json
  bool untrained = false;        // use the initial random weights of the checkpoint's run
};

struct StoredModel {
  std::string name;               // for messages: "step 800 of checkpoints/qwen3_tiny-800steps" or the folder
  model::ModelConfig config;      // eos_token_ids include those of generation_config.json and the dataset
  std::string tokenizer;          // "bytes", folder or Hugging Face name; empty: not recorded
  std::string chat_template{};    // chat template of the training data; empty: not recorded
  std::optional<bool> add_bos{};  // documents begin with config.bos_token_id; std::nullopt: not recorded
};

// Calls `use` with the model and its weights. Calls `use` again if a concurrent process replaces the checkpoint. Passes
// warnings to `say`. Throws UserError if the folder contains no model or the parameters do not match config.json.
// Rethrows exceptions of `use`.
void read_model(const ModelRequest& request, const std::function<void(const StoredModel&, const ParameterSource&)>& use,
                const std::function<void(const std::string&)>& say);

}  // namespace mpzero
