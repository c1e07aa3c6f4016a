#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/ds_config.hpp"
#include "parallel/lr_schedule.hpp"

namespace mpzero {

// What one training run does, after the command line, ds_config.json and the number of ranks have been brought together and
// checked against each other. Nothing downstream looks at flags or JSON again.
struct RunConfig {
  // model
  std::string model_type;    // preset name, e.g. "qwen3_0_6b"; names the checkpoint folders
  std::string model_config;  // path of the Hugging Face config.json that describes it
  std::string init_from;     // safetensors folder; empty: random weights from `seed`
  std::optional<int64_t> vocab_size;  // --vocab_size given: overrides the model's
  bool recompute_activations = false;

  // data
  std::string train_data;
  std::string validation_data;  // empty: no validation
  int64_t seq_length = 2048;
  bool shuffle = true;
  uint64_t seed = 42;

  // batch: train_batch_size = micro_batch_size * gradient_accumulation_steps * world_size
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;
  int64_t gradient_accumulation_steps = 0;

  // optimization
  OptimizerConfig optimizer;      // lr, betas, eps, weight_decay, bias_correction
  parallel::LrSchedule schedule;  // value type; schedule.lr(update) with update counted from 1
  double gradient_clipping = 1.0;  // 0: off
  std::string dtype = "bf16";      // "bf16" or "fp32"
  ZeroConfig zero;
  std::string communication_dtype;  // "bf16" or "fp32"

  // loop
  int64_t max_steps = 1000;
  int64_t logging_freq = 10;
  int64_t validation_freq = 100;   // 0: never
  int64_t validation_batches = 10; // micro-batches over all ranks together... per rank
  std::string metrics_file;

  // checkpoints
  std::string checkpoint_dir = "checkpoints";
  int64_t checkpoint_freq = 500;  // 0: only at the end
  int64_t keep_last = 0;          // 0: all
  std::string resume_from_checkpoint;  // empty: checkpoint_dir if it holds `latest`; "none": never; else a folder, required

  std::string device = "auto";  // "auto", "cuda" or "cpu"
};

}  // namespace mpzero
