#pragma once

#include <filesystem>
#include <string>

#include "base/process_group.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "model/architecture/config.hpp"
#include "model/initializer.hpp"
#include "tests/model/small_configs.hpp"

// Small models in folders, for tests of mpzero generate.
namespace mpzero::testing {

// The vocabulary contains the byte ids, a separate end-of-text id and a few unused ids.
inline model::ModelConfig byte_model() {
  model::ModelConfig config = model::small_qwen3();
  config.vocab_size = 260;
  config.eos_token_ids = {256};
  config.initializer_range = 0.3;
  return config;
}

struct SavedModel {
  model::ModelConfig config = byte_model();
  std::string tag = "small-7steps";
  std::string tokenizer = "bytes";  // empty: not recorded
  std::string init_from{};
  uint64_t trained = 1;  // seed of the random weights
  uint64_t seed = 5;     // seed of the run
  float offset = 0;      // added to all weights; may be NaN
};

// Saves a single-rank checkpoint to `dir`.
inline void save_model(const std::filesystem::path& dir, const SavedModel& saved) {
  const std::vector<UnitSpec> units = model_units(saved.config);
  io::TrainingProgress progress;
  progress.step = 7;
  progress.seed = saved.seed;
  progress.dtype = "fp32";
  progress.zero_stage = 1;
  progress.model_config_json = saved.config.to_json();
  if (!saved.tokenizer.empty()) {
    progress.data_order = "187 sequences of 16 tokens, tokenizer " + saved.tokenizer + ", shuffled";
  }
  io::SaveJob job{.checkpoint_dir = dir,
                  .tag = saved.tag,
                  .progress = progress,
                  .shards = {},
                  .model_type = "small",
                  .run = {.id = "00000000aaaaaaaa", .init_from = saved.init_from}};
  for (const UnitSpec& unit : units) job.shards.push_back({.unit = &unit, .begin = 0, .count = unit.numel()});
  const model::RandomInitializer weights(saved.trained, saved.config.initializer_range);
  std::vector<float> values;
  const auto fetch = [&](size_t i, StateKind) -> std::span<const float> {
    values.clear();
    for (const ParameterSpec& parameter : units[i].parameters) {
      std::vector<float> read(static_cast<size_t>(parameter.numel()));
      weights.read(parameter, 0, read);
      for (const float value : read) values.push_back(value + saved.offset);
    }
    return values;
  };
  SingleProcess alone;
  io::save_checkpoint(job, {.fetch = fetch}, alone);
}

}  // namespace mpzero::testing
