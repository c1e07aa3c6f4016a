#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/parameter_source.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {

// Which weights are meant.
struct ModelRequest {
  std::filesystem::path folder;  // or the name of a cached model on the hub
  std::string tag{};             // of a checkpoint in the folder; empty: the folder's own, or what `latest` names
  std::string base_model{};      // of adapters; empty: as they record it
  std::string model_config{};    // a config.json in place of the folder's; empty: the folder's
  bool untrained = false;        // the random weights that the checkpoint's run began with
};

struct StoredModel {
  std::string name;           // for sentences: "step 800 of checkpoints/qwen3_tiny-800steps", or the folder
  model::ModelConfig config;  // its eos_token_ids are all that end a text, also of generation_config.json and the data
  std::string tokenizer;      // "bytes", a folder, or a name of Hugging Face's; empty: not recorded
  std::string chat_template{};    // that rendered the training data; empty: not recorded
  std::optional<bool> add_bos{};  // whether texts begin with config.bos_token_id, where the token file recorded it
};

// Calls `use` with the model and its weights, which are of the model's units. Calls it again if another process
// replaces the checkpoint meanwhile. `say` receives sentences about the weights. Throws UserError where the folder
// holds no model, or not the parameters of its config.json, and what `use` throws.
void read_model(const ModelRequest& request, const std::function<void(const StoredModel&, const ParameterSource&)>& use,
                const std::function<void(const std::string&)>& say);

}  // namespace mpzero
