#pragma once

#include "app/plan/simulation/simulated_run.hpp"

namespace mpzero::plan {

// A model with two layers and a tied head, whose times are whole milliseconds. All other operations take no time.
inline SimulatedRun small_run() {
  model::ModelConfig model;
  model.model_type = "llama";
  model.vocab_size = 256;
  model.hidden_size = 64;
  model.intermediate_size = 128;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 4;
  model.head_dim = 16;
  model.max_position_embeddings = 128;
  model.rms_norm_eps = 1e-5;
  model.rope_theta = 1e4;
  const auto milliseconds = [](double count) { return Seconds{.matmuls = count * 1e-3}; };
  SimulatedRun run{
      .model = model,
      .options = {},
      .layout = {},
      .ranks = {},
      .micro_batch = 1,
      .seq_length = 8,
      .recompute = {model::Recompute::kNone, model::Recompute::kNone},
      .times = {.embedding_forward = milliseconds(1),
                .embedding_backward = milliseconds(2),
                .layer_forward = {},
                .layer_backward = {{milliseconds(20), milliseconds(22), milliseconds(25), milliseconds(30)}},
                .head = milliseconds(5)},
      .costs = {.memory = [](int64_t) { return 0.0; },
                .down = [](int64_t) { return 0.0; },
                .up = [](int64_t) { return 0.0; },
                .adamw = [](int64_t) { return 0.0; },
                .squares = [](int64_t) { return 0.0; },
                .launch = 0},
      .host_adamw = [](int64_t) { return 0.0; },
      .links = {}};
  run.times.layer_forward.values.fill(milliseconds(10));
  return run;
}

}  // namespace mpzero::plan
