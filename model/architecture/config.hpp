#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parameter_spec.hpp"
#include "model/architecture/lora.hpp"
#include "model/architecture/rope_scaling.hpp"

namespace mpzero::model {

// Configuration of T5. ModelConfig::num_hidden_layers counts both encoder and decoder layers.
struct T5Config {
  int64_t encoder_layers = 0;
  int64_t buckets = 32, max_distance = 128;  // relative position buckets
  bool gated = false;                        // true: wo(gelu(wi_0 x) * wi_1 x); false: wo(relu(wi x))
  double dropout_rate = 0.1;
  int64_t pad_token_id = 0, decoder_start_token_id = 0;
  bool operator==(const T5Config&) const = default;
};

// Keys of config.json that mpzero does not use, such as use_cache, as a serialized JSON object; may be empty.
// Comparisons of ModelConfig ignore these keys.
struct UnusedKeys {
  std::string json;
  bool operator==(const UnusedKeys&) const { return true; }
};

// Model shape, with the field names of a Hugging Face config.json. Callers that modify fields, e.g. for a command-line
// override, must call validate() afterwards.
struct ModelConfig {
  std::string model_type;  // Architecture::model_type
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  std::optional<RopeScaling> rope_scaling;
  // Number of tokens that a query attends to, including the query's own token; std::nullopt means all preceding tokens.
  // mpzero rejects sequences that exceed the window.
  std::optional<int64_t> sliding_window;
  // Per layer: true if the layer applies RoPE (1 in config.json's no_rope_layers). Empty if all layers apply RoPE.
  std::vector<bool> rotated_layers;
  // Granite's multipliers. Logits are divided by logits_scaling. attention_multiplier scales attention scores and
  // defaults to 1 / sqrt(head_dim).
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_scaling = 1.0;
  std::optional<double> attention_multiplier;
  bool tie_word_embeddings = false;
  std::optional<T5Config> t5;
  double initializer_range = 0.02;
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::optional<LoraConfig> lora;  // mpzero extension in checkpoints; std::nullopt if all weights are trained
  UnusedKeys unused;

  // Reads a Hugging Face config.json. Throws UserError with `source`, key and value if mpzero's results would differ
  // from those of transformers, e.g. for an unknown model_type or an unsupported bias, sliding window, activation or
  // RoPE type. `max_position_embeddings` overrides the file's value before dependent values are computed.
  static ModelConfig from_json(std::string_view text, const std::string& source,
                               std::optional<int64_t> max_position_embeddings = {});
  static ModelConfig from_file(const std::filesystem::path& path, std::optional<int64_t> max_position_embeddings = {});

  // Throws UserError with `source`, key and value unless all sizes are positive and consistent.
  void validate(const std::string& source) const;

  // Returns a config.json that transformers can load, including the unused keys. `dtype` is the dtype of the stored
  // weights.
  std::string to_json(std::string_view dtype = "float32") const;

  // Returns the configuration without adapters.
  ModelConfig base() const;

  // Returns the maximum sequence length for which dynamic or LongRoPE scaling leaves the rotary frequencies unchanged,
  // or the largest int64_t for models without dynamic or LongRoPE scaling.
  int64_t rope_changes_after() const;
  // Returns the maximum length of a generated sequence, limited by the sliding window and rope_changes_after().
  int64_t positions() const;
  bool rotates(size_t layer) const { return rotated_layers.empty() || rotated_layers[layer]; }
  int64_t query_size() const { return num_attention_heads * head_dim; }
  int64_t key_value_size() const { return num_key_value_heads * head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// Returns the units of the model in the order of the forward pass: "embedding", "layers.0", ..., "head". With adapters,
// all other parameters are frozen.
std::vector<UnitSpec> model_units(const ModelConfig& config);

// Position of a layer in T5's encoder or decoder stack.
struct T5Layer {
  bool decoder = false, first = false, last_of_encoder = false;  // `first`: first layer of the stack
  bool operator==(const T5Layer&) const = default;
};
T5Layer t5_layer(const ModelConfig& config, int64_t layer);

// Returns the number of parameters, including frozen parameters and adapters. An output weight that is tied to the
// embedding is not counted again.
int64_t num_parameters(const ModelConfig& config);

// Returns the FLOPs per token of the forward and backward pass, without recomputation: 6 per weight in a matmul
// (4 if the weight is frozen) plus 6 * layers * heads * head_dim * seq_length for causal attention (without the masked
// half). The input embedding counts only if the head is tied. `source_length`: number of tokens that the encoder reads.
double flops_per_token(const ModelConfig& config, int64_t seq_length, int64_t source_length = 0);
// Overload that determines the frozen parameters from `units`.
double flops_per_token(const ModelConfig& config, int64_t seq_length, int64_t source_length,
                       const std::vector<UnitSpec>& units);

// Returns `path`, or `path`/config.json if `path` is a folder.
std::filesystem::path config_file(const std::filesystem::path& path);

}  // namespace mpzero::model
