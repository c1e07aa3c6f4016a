#include "app/run_state.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/safetensors.hpp"
#include "model/initializer.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

// Learning rates that differ by less, relatively, are the same.
constexpr double kSameLr = 1e-9;

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

std::optional<fs::path> checkpoint_to_resume(const RunConfig& config) {
  if (config.resume_from_checkpoint == "none") return std::nullopt;
  if (config.resume_from_checkpoint.empty()) return io::latest_checkpoint(config.checkpoint_dir);
  return io::find_checkpoint(config.resume_from_checkpoint);
}

RunPosition restore_run(const fs::path& checkpoint, const RunSetup& setup, const std::vector<UnitSpec>& units,
                        parallel::ZeroEngine& engine, ProcessGroup& group, std::vector<std::string>& warnings) {
  std::optional<io::CheckpointReader> reader;
  run_on_all_ranks(group, [&] {
    reader.emplace(checkpoint);
    io::check_same_model(reader->units(), units, checkpoint);
    if (reader->progress().seed != setup.config.seed) {
      throw_user_error(
          "{} was trained with --seed {}, this run has --seed {}: the order of the data would change; give the same "
          "seed",
          checkpoint.string(), reader->progress().seed, setup.config.seed);
    }
  });
  engine.restore([&](size_t unit, StateKind kind, int64_t begin,
                     std::span<float> out) { reader->read(units[unit].name, kind, begin, out); },
                 group);
  const io::TrainingProgress& progress = reader->progress();
  if (!progress.data_order.empty() && progress.data_order != setup.data_order) {
    warnings.push_back(
        fmt::format("the data is not that of {} ({}; now {}): it goes on at sequence {} of the new order, and what was "
                    "seen before may come again.",
                    checkpoint.string(), progress.data_order, setup.data_order, progress.windows_seen));
  }
  const double lr = setup.config.schedule.lr(progress.step);
  if (progress.step > 0 && std::abs(lr - progress.lr) > kSameLr * std::abs(progress.lr)) {
    warnings.push_back(
        fmt::format("the schedule is not that of {}: step {} was taken with learning rate {:.6g}, where this run's "
                    "schedule has {:.6g}; to go on as before, give the same learning rate and total_num_steps (or "
                    "--max_steps, where total_num_steps is left out).",
                    checkpoint.string(), progress.step, progress.lr, lr));
  }
  return {.step = progress.step, .windows_seen = progress.windows_seen, .tokens_seen = progress.tokens_seen};
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

fs::path save_run(const RunSetup& setup, const RunPosition& position, const std::vector<UnitSpec>& units,
                  parallel::ZeroEngine& engine, ProcessGroup& group) {
  const RunConfig& config = setup.config;
  std::vector<io::UnitShard> shards;
  shards.reserve(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::ZeroEngine::Shard mine = engine.shard(u);
    // Unsharded states are the same on every rank; rank 0 writes them.
    const bool writes = config.zero.stage > 0 || group.rank() == 0;
    shards.push_back({.unit = &units[u], .begin = mine.begin, .count = writes ? mine.count : 0});
  }
  const io::TrainingProgress progress{.step = position.step,
                                      .tokens_seen = position.tokens_seen,
                                      .windows_seen = position.windows_seen,
                                      .seed = config.seed,
                                      .data_order = setup.data_order,
                                      .lr = config.schedule.lr(position.step),
                                      .dtype = config.dtype,
                                      .zero_stage = config.zero.stage,
                                      .model_config_json = setup.model.to_json(),
                                      .run_config_json = config.ds_config_json};
  const std::string tag = checkpoint_tag(config, position.step);
  const auto fetch = [&](size_t shard, StateKind kind) {
    return engine.read_state(shard, kind).first(static_cast<size_t>(shards[shard].count));
  };
  io::save_checkpoint(config.checkpoint_dir, tag, progress, shards, fetch, group);
  run_on_all_ranks(group, [&] {
    if (group.rank() == 0) io::prune_checkpoints(config.checkpoint_dir, config.model_type, config.keep_last);
  });
  return fs::path(config.checkpoint_dir) / tag;
}

}  // namespace mpzero
