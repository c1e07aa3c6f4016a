#pragma once

#include "model/architecture/config.hpp"

namespace mpzero::model {

// Odd sizes on purpose: none is a multiple of a pack or a warp.
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

}  // namespace mpzero::model
