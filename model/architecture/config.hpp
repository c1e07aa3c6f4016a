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

// T5's own settings. num_hidden_layers counts encoder layers plus decoder layers.
struct T5Config {
  int64_t encoder_layers = 0;
  int64_t buckets = 32, max_distance = 128;  // of relative positions
  bool gated = false;                        // wo(gelu(wi_0 x) * wi_1 x), else wo(relu(wi x))
  double dropout_rate = 0.1;
  int64_t pad_token_id = 0, decoder_start_token_id = 0;
  bool operator==(const T5Config&) const = default;
};

// The keys of a config.json that mpzero does not use (pad_token_id, use_cache), as one JSON object, or empty. Models
// that differ only in these are equal.
struct UnusedKeys {
  std::string json;
  bool operator==(const UnusedKeys&) const { return true; }
};

// The shape of a model, with the names of a Hugging Face config.json. Fields may be changed after reading (an override
// on the command line); call validate() afterwards.
struct ModelConfig {
  std::string model_type;  // of one of architectures()
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
  // Tokens that a query attends to, itself included; std::nullopt: all before it. Longer sequences are refused.
  std::optional<int64_t> sliding_window;
  // Whether each layer rotates queries and keys; empty: all do. As in config.json's no_rope_layers, where 1 means yes.
  std::vector<bool> rotated_layers;
  // Granite's factors on the embedding's output and on residual branches, the divisor of logits, and the factor on
  // attention scores (std::nullopt: 1 / sqrt(head_dim)).
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_scaling = 1.0;
  std::optional<double> attention_multiplier;
  bool tie_word_embeddings = false;
  std::optional<T5Config> t5;
  double initializer_range = 0.02;
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::optional<LoraConfig> lora;  // std::nullopt: all weights are trained. mpzero's own key, in checkpoints
  UnusedKeys unused;

  // Reads a Hugging Face config.json. Throws UserError with `source`, key and value for anything that mpzero would
  // compute differently from transformers: another model_type, biases that the family does not have, sliding windows,
  // another activation or rope type. `max_position_embeddings` overrides the file's value before other values are
  // derived from it.
  static ModelConfig from_json(std::string_view text, const std::string& source,
                               std::optional<int64_t> max_position_embeddings = {});
  static ModelConfig from_file(const std::filesystem::path& path, std::optional<int64_t> max_position_embeddings = {});

  // Throws UserError with `source`, key and value unless the sizes are positive and consistent.
  void validate(const std::string& source) const;

  // A config.json that transformers loads, with the unused keys as they were read. `dtype`: the dtype of the weights
  // stored with it.
  std::string to_json(std::string_view dtype = "float32") const;

  // The model without adapters.
  ModelConfig base() const;

  // The maximum length with unchanged rotary frequencies: dynamic and LongRoPE scaling change them in longer sequences.
  // Otherwise the largest int64_t.
  int64_t rope_changes_after() const;
  // Maximum length of a generated sequence: within the window and with unchanged frequencies.
  int64_t positions() const;
  bool rotates(size_t layer) const { return rotated_layers.empty() || rotated_layers[layer]; }
  int64_t query_size() const { return num_attention_heads * head_dim; }
  int64_t key_value_size() const { return num_key_value_heads * head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// The units of the model in the order of the forward pass: "embedding", "layers.0" …, "head". With adapters all other
// parameters are frozen.
std::vector<UnitSpec> model_units(const ModelConfig& config);

// The position of a T5 layer.
struct T5Layer {
  bool decoder = false, first = false, last_of_encoder = false;  // first: of its stack
  bool operator==(const T5Layer&) const = default;
};
T5Layer t5_layer(const ModelConfig& config, int64_t layer);

// Number of parameters, including frozen ones and adapters; a tied head counts once.
int64_t num_parameters(const ModelConfig& config);

// Floating-point operations of forward and backward for one token of a sequence of `seq_length`, without recomputation:
// 6 for each weight in a matrix product (all matrices except the input embedding; a tied head counts), 4 if it is
// frozen, plus 6 * layers * heads * head_dim * seq_length for causal attention (the masked half is not counted).
// `source_length`: the number of those tokens that an encoder reads.
double flops_per_token(const ModelConfig& config, int64_t seq_length, int64_t source_length = 0);
// The same for the model's `units`, with their frozen parameters.
double flops_per_token(const ModelConfig& config, int64_t seq_length, int64_t source_length,
                       const std::vector<UnitSpec>& units);

}  // namespace mpzero::model
