#include "app/run_state.hpp"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "app/deepspeed_format.hpp"
#include "app/recorded_settings.hpp"
#include "base/error.hpp"
#include "io/safetensors.hpp"
#include "model/initializer.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

// Weights that the model has no place for are a sign of another model: one with biases, more layers, an untied head.
void check_all_used(const io::SafetensorsSource& weights, const std::vector<UnitSpec>& units,
                    const std::string& folder) {
  std::set<std::string> used;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) used.insert(parameter.name);
  }
  // A tied head is often saved beside the embedding, and old Llama checkpoints hold their table of rotations.
  const auto is_copy = [](const std::string& name) {
    return name == "lm_head.weight" || name.ends_with(".rotary_emb.inv_freq");
  };
  for (const ParameterSpec& stored : weights.parameters()) {
    if (used.contains(stored.name) || is_copy(stored.name)) continue;
    throw_user_error(
        "--init_from {}: the model has no place for tensor {} [{}]; give the config.json that belongs to these weights",
        folder, stored.name, fmt::join(stored.shape, ", "));
  }
}

}  // namespace

std::string checkpoint_tag(const RunConfig& config, int64_t step) {
  return fmt::format("{}-{}steps", config.model_type, step);
}

void initialize_run(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
                    ProcessGroup& group) {
  if (setup.config.init_from.empty()) {
    engine.initialize(model::RandomInitializer(setup.config.seed, setup.model.initializer_range), group);
    return;
  }
  std::optional<io::SafetensorsSource> weights;
  run_on_all_ranks(group, [&] {
    weights.emplace(setup.config.init_from);
    check_all_used(*weights, units, setup.config.init_from);
  });
  engine.initialize(*weights, group);
}

std::vector<io::UnitShard> checkpoint_shards(const RunConfig& config, const std::vector<UnitSpec>& units,
                                             const parallel::ZeroEngine& engine, int rank) {
  std::vector<io::UnitShard> shards;
  shards.reserve(units.size());
  const bool writes = config.zero.stage > 0 || rank == 0;
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::ZeroEngine::Shard mine = engine.shard(u);
    shards.push_back({.unit = &units[u], .begin = mine.begin, .count = writes ? mine.count : 0});
  }
  return shards;
}

io::SaveJob checkpoint_job(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                           const parallel::ZeroEngine& engine, int rank) {
  const RunConfig& config = setup.config;
  return {.checkpoint_dir = config.checkpoint_dir,
          .tag = checkpoint_tag(config, position.step),
          .progress = {.step = position.step,
                       .tokens_seen = position.tokens_seen,
                       .windows_seen = position.windows_seen,
                       .seed = config.seed,
                       .data_order = setup.data_order,
                       .lr = config.schedule.lr(position.step),
                       .dtype = config.dtype,
                       .zero_stage = config.zero.stage,
                       .model_config_json = setup.model.to_json(),
                       .run_config_json = config.ds_config_json,
                       .settings_json = recorded_settings(config, setup.data).dump()},
          .shards = checkpoint_shards(config, units, engine, rank),
          .model_type = config.model_type,
          .keep_last = config.keep_last,
          .run = setup.run,
          .deepspeed = deepspeed_settings(config, position.step)};
}

}  // namespace mpzero
