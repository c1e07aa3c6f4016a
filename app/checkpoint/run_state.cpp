#include "app/checkpoint/run_state.hpp"

#include <memory>
#include <nlohmann/json.hpp>

#include "app/checkpoint/run_folder.hpp"
#include "app/config/deepspeed_format.hpp"
#include "app/config/recorded_settings.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/adapters/peft_files.hpp"
#include "io/peft/peft_config.hpp"
#include "io/weights/initial_weights.hpp"
#include "io/weights/matched_weights.hpp"
#include "model/initializer.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

// Opens the weights of --init_from and matches them to the model's names and shapes.
std::unique_ptr<WeightSource> open_weights(const fs::path& folder, const std::vector<UnitSpec>& units,
                                           io::TiedHead head = io::TiedHead::kCompare) {
  return io::match_weights(io::open_initial_weights(folder), units, folder, head);
}

// Returns the predicate of a warning, such as "no longer exists", if the weights cannot be compared; otherwise empty.
std::string missing_weights(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return "no longer exists";
  return io::has_initial_weights(folder) ? "" : "no longer contains weights";
}

// Returns the folder of --init_from. If --init_from is a folder of checkpoints, whose `latest` may have changed,
// returns the checkpoint in that folder from which `run` started.
fs::path weights_to_compare(const RunSetup& setup, const io::RunRecord& run) {
  const fs::path now = recorded_init_from(setup.config);
  const fs::path before = run.init_from;
  const bool same_parent = !before.empty() && before.parent_path() == now.parent_path();
  return setup.init_from_latest && same_parent ? before : fs::path(setup.config.init_from);
}

std::vector<UnitSpec> only_adapters(std::vector<UnitSpec> units) {
  for (UnitSpec& unit : units) {
    std::erase_if(unit.parameters, [](const ParameterSpec& parameter) { return !is_adapter(parameter.name); });
  }
  return units;
}

// Like problem_of_initial_weights(), but for the adapters of --init_from.
std::string problem_of_initial_adapters(const RunSetup& setup, const io::RunRecord& run, const fs::path& checkpoint,
                                        ProcessGroup& group, std::vector<std::string>& warnings) {
  const std::string& given = setup.config.init_adapters;
  if (given.empty()) return "";
  const fs::path before = run.init_adapters, now = absolute_init_from(given);
  const bool compares_before = setup.init_adapters_latest && before.parent_path() == now.parent_path();
  const std::string folder = compares_before ? before.string() : given;
  bool exists = true;
  run_on_all_ranks(group, [&] {
    if (group.rank() == 0) exists = io::holds_peft_adapters(folder) || io::has_initial_weights(folder);
  });
  exists = broadcast(group, exists);
  if (run.init_adapters_hash.empty() || (!exists && (compares_before || before == now))) {
    warnings.push_back(
        fmt::format("the run continues with the adapters of {}; the adapters of --init_from {} were not compared: {}.",
                    checkpoint.string(), folder, exists ? "the run recorded no hash" : "they no longer exist"));
    return "";
  }
  std::string hash;
  if (exists) {
    const std::vector<UnitSpec> units = only_adapters(model_units(setup.model));
    std::unique_ptr<WeightSource> source;
    run_on_all_ranks(group, [&] { source = io::open_adapters(folder, units); });
    hash = io::hash_of(*source, units, group);
    source->verify_what_was_read(group);
  }
  if (hash == run.init_adapters_hash) return "";
  return fmt::format(
      "{} belongs to a run that started from the adapters of {} (xxh3 {}), not from the adapters of --init_from {} "
      "(xxh3 {}); pass the same adapters",
      checkpoint.string(), run.init_adapters, run.init_adapters_hash, folder, hash);
}

std::string describe_weights(const io::RunRecord& run) {
  if (run.init_from.empty()) return "random weights";
  const std::string hash = run.init_from_hash.empty() ? "" : fmt::format(" (xxh3 {})", run.init_from_hash);
  return fmt::format("the weights of {}{}", run.init_from, hash);
}

}  // namespace

std::vector<UnitSpec> saved_units(const RunSetup& setup, std::vector<UnitSpec> parts) {
  if (!setup.model.lora || setup.run.init_from.empty()) return parts;
  for (UnitSpec& part : parts) part.in_base = !part.trainable();
  return parts;
}

std::string checkpoint_tag(const RunConfig& config, int64_t step) {
  return fmt::format("{}-{}steps", config.model_type, step);
}

void check_initial_weights(const std::string& folder, const std::vector<UnitSpec>& units,
                           std::vector<std::string>& warnings) {
  const auto weights = open_weights(folder, units);
  warnings.insert(warnings.end(), weights->warnings().begin(), weights->warnings().end());
}

void initialize_run(RunSetup& setup, parallel::ZeroEngine& engine, ProcessGroup& group,
                    std::vector<std::string>& warnings) {
  const RunConfig& config = setup.config;
  const model::RandomInitializer random(config.seed, setup.model);
  if (config.init_from.empty()) {
    return engine.initialize(random, group);
  }
  const std::vector<UnitSpec> units = model_units(setup.model.base());
  const std::vector<UnitSpec> adapter_units = only_adapters(model_units(setup.model));
  std::unique_ptr<WeightSource> source, adapter_source;
  run_on_all_ranks(group, [&] {
    source = open_weights(config.init_from, units);
    if (!config.init_adapters.empty()) adapter_source = io::open_adapters(config.init_adapters, adapter_units);
  });
  warnings.insert(warnings.end(), source->warnings().begin(), source->warnings().end());
  const io::WeightType type = config.dtype == "bf16" ? io::WeightType::kBFloat16 : io::WeightType::kFloat32;
  const io::InitialWeights weights(*source, type);
  std::optional<io::InitialWeights> adapters;
  if (adapter_source) adapters.emplace(*adapter_source, type);
  engine.initialize(io::WithAdapters(weights, adapters ? static_cast<const ParameterSource&>(*adapters) : random),
                    group);
  source->verify_what_was_read(group);
  // Every rank reads all unsharded states, so only rank 0 adds them to the hash.
  const bool counts = config.zero.stage > 0 || group.rank() == 0;
  setup.run.init_from_hash = weights.hash(units, counts, group);
  if (!adapters) return;
  adapter_source->verify_what_was_read(group);
  setup.run.init_adapters_hash = adapters->hash(adapter_units, counts, group);
  if (setup.init_base_hash.empty() || setup.init_base_hash == setup.run.init_from_hash) return;
  throw UserError(
      fmt::format("the adapters of {} were trained on a base model with xxh3 {}, but the weights of {} have "
                  "xxh3 {}; pass the original base model with --base_model",
                  config.init_adapters, setup.init_base_hash, config.init_from, setup.run.init_from_hash),
      ErrorScope::kAllRanks);
}

std::string problem_of_initial_weights(const RunSetup& setup, const io::RunRecord& run, const fs::path& checkpoint,
                                       WeightsCheck check, ProcessGroup& group, std::vector<std::string>& warnings) {
  if (run.id.empty() || setup.config.init_from.empty()) return "";
  std::string of_adapters = problem_of_initial_adapters(setup, run, checkpoint, group, warnings);
  if (!of_adapters.empty()) return of_adapters;
  // The base of adapters was compared when it was read, unless the checkpoint contains the base.
  if (setup.model.lora && check == WeightsCheck::kContent && !run.init_from_hash.empty()) return "";
  const fs::path folder = weights_to_compare(setup, run);
  const auto others = [&](const std::string& hash) {
    return fmt::format(
        "{} belongs to a run that started from {}, not from the weights of --init_from {}{}; omit --init_from{}",
        checkpoint.string(), describe_weights(run), folder.string(), hash,
        setup.names_model ? "" : ", and pass the run's model with --model_config or --model_type");
  };
  const bool same_path = folder == run.init_from || recorded_init_from(setup.config) == run.init_from;
  // The run continues even if the initial weights have been removed. Rank 0 decides for all ranks.
  std::string missing;
  run_on_all_ranks(group, [&] {
    if (group.rank() == 0) missing = missing_weights(folder);
  });
  missing = broadcast(group, missing);
  if (run.init_from_hash.empty() || !missing.empty()) {
    if (!same_path) return others("");
    if (!missing.empty()) {
      warnings.push_back(fmt::format(
          "--init_from {} {}, so its weights were not compared with the run's initial weights; only the paths were "
          "compared.",
          folder.string(), missing));
    }
    return "";
  }
  const std::vector<UnitSpec> units = model_units(setup.model.base());
  std::unique_ptr<WeightSource> source;
  run_on_all_ranks(group, [&] { source = open_weights(folder, units, io::TiedHead::kPassOver); });
  if (same_path && check == WeightsCheck::kContentOfOtherPath) return "";
  const std::string hash = io::hash_of(*source, units, group);
  source->verify_what_was_read(group);
  return hash == run.init_from_hash ? "" : others(fmt::format(" (xxh3 {})", hash));
}

std::vector<io::UnitShard> checkpoint_shards(const RunConfig& config, const std::vector<UnitSpec>& units,
                                             const parallel::ZeroEngine& engine, int rank) {
  std::vector<io::UnitShard> shards;
  shards.reserve(units.size());
  const bool writes = config.zero.stage > 0 || rank == 0;
  for (size_t u = 0; u < units.size(); ++u) {
    const parallel::ZeroEngine::Shard mine = engine.shard(u);
    shards.push_back({.unit = &units[u], .begin = mine.begin, .count = writes && !units[u].in_base ? mine.count : 0});
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
                       .sequences_seen = position.sequences_seen,
                       .seed = config.seed,
                       .data_order = setup.data_order,
                       .lr = config.lr(position.step),
                       .dtype = config.dtype,
                       .zero_stage = config.zero.stage,
                       .model_config_json = setup.model.to_json(),
                       .run_config_json = config.ds_config_json,
                       .settings_json = recorded_settings(setup, position.sources).dump()},
          .shards = checkpoint_shards(config, units, engine, rank),
          .model_type = config.model_type,
          .keep_last = config.keep_last,
          .run = setup.run,
          .start = setup.start,
          .format = config.deepspeed_format ? io::CheckpointFormat(deepspeed_settings(config, position.step))
                                            : io::Hdf5Format{}};
}

}  // namespace mpzero
