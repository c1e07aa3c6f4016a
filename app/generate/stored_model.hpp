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
  std::filesystem::path folder;  // or the name of a cached model on the hub
  std::string tag{};             // checkpoint in the folder; empty: the folder's own, or the one in `latest`
  std::string base_model{};      // base of adapters; empty: the recorded one
  std::string model_config{};    // replaces the folder's config.json; empty: the folder's
  bool untrained = false;        // the initial random weights of the checkpoint's run
};

struct StoredModel {
  std::string name;               // for messages: "step 800 of checkpoints/qwen3_tiny-800steps", or the folder
  model::ModelConfig config;      // eos_token_ids include those of generation_config.json and the dataset
  std::string tokenizer;          // "bytes", a folder, or a Hugging Face name; empty: not recorded
  std::string chat_template{};    // template of the training data; empty: not recorded
  std::optional<bool> add_bos{};  // whether texts begin with config.bos_token_id, if the token file recorded it
};

// Calls `use` with the model and its weights, by the model's units. Calls it again if another process replaces the
// checkpoint meanwhile. `say` receives warnings about the weights. Throws UserError if the folder contains no model, or
// not the parameters of its config.json, and rethrows what `use` throws.
void read_model(const ModelRequest& request, const std::function<void(const StoredModel&, const ParameterSource&)>& use,
                const std::function<void(const std::string&)>& say);

}  // namespace mpzero
