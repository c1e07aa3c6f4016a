#pragma once

#include <vector>

#include "model/architecture/config.hpp"

namespace mpzero::model {

// The sizes are odd on purpose: none is a multiple of a pack or a warp.
inline ModelConfig small_qwen3() {
  ModelConfig config;
  config.model_type = "qwen3";
  config.vocab_size = 53;
  config.hidden_size = 28;
  config.intermediate_size = 44;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.max_position_embeddings = 64;
  config.rms_norm_eps = 1e-6;
  config.rope_theta = 10000.0;
  config.tie_word_embeddings = true;
  return config;
}

inline ModelConfig small_llama() {
  ModelConfig config = small_qwen3();
  config.model_type = "llama";
  config.hidden_size = 36;
  config.head_dim = 6;
  config.tie_word_embeddings = false;
  config.rope_scaling = Llama3RopeScaling{8.0, 1.0, 4.0, 16};
  return config;
}

inline ModelConfig small_qwen2() {
  ModelConfig config = small_llama();
  config.model_type = "qwen2";
  config.tie_word_embeddings = true;
  config.rope_scaling.reset();
  return config;
}

// The window covers all sequences in the tests. Some rotary frequencies are unchanged, and some are interpolated.
inline ModelConfig small_mistral() {
  ModelConfig config = small_llama();
  config.model_type = "mistral";
  config.sliding_window = 64;
  config.rope_theta = 100.0;
  config.rope_scaling =
      YarnRopeScaling{.factor = 4.0, .original_max_position_embeddings = 16, .attention_factor = 1.14, .beta_fast = 2};
  return config;
}

inline ModelConfig small_granite() {
  ModelConfig config = small_llama();
  config.model_type = "granite";
  config.rope_scaling.reset();
  config.embedding_multiplier = 6.0;
  config.residual_multiplier = 0.22;
  config.logits_scaling = 3.0;
  config.attention_multiplier = 0.6;
  config.tie_word_embeddings = true;
  return config;
}

inline ModelConfig small_olmo2() {
  ModelConfig config = small_llama();
  config.model_type = "olmo2";
  config.rope_scaling.reset();
  return config;
}

inline ModelConfig small_phi3() {
  ModelConfig config = small_olmo2();
  config.model_type = "phi3";
  return config;
}

inline ModelConfig small_seed_oss() {
  ModelConfig config = small_olmo2();
  config.model_type = "seed_oss";
  config.head_dim = 8;
  return config;
}

// The first layer does not apply RoPE.
inline ModelConfig small_smollm3() {
  ModelConfig config = small_olmo2();
  config.model_type = "smollm3";
  config.rotated_layers = {false, true};
  config.tie_word_embeddings = true;
  return config;
}

// Returns one model of each family.
inline std::vector<ModelConfig> small_models() {
  return {small_qwen3(), small_llama(), small_qwen2(),    small_mistral(), small_granite(),
          small_olmo2(), small_phi3(),  small_seed_oss(), small_smollm3()};
}

}  // namespace mpzero::model
