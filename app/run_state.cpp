#include "app/run_state.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_catalog.hpp"
#include "io/checkpoint_manifest.hpp"
#include "io/safetensors.hpp"
#include "io/stored_checkpoint.hpp"
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

// DeepSpeed knows how many windows were seen, but not which: the run goes on where its own order has as many behind it.
RunPosition take_over_from_deepspeed(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                                     std::vector<std::string>& warnings) {
  const io::TrainingProgress& progress = checkpoint.progress();
  if (setup.config.shuffle) {
    warnings.push_back(
        fmt::format("{} is DeepSpeed's and does not say in which order it saw the data: the run goes on at sequence {} "
                    "of its own order, and what was seen before may come again.",
                    checkpoint.folder().string(), progress.windows_seen));
  }
  const double lr = setup.config.schedule.lr(progress.step + 1);
  if (checkpoint.next_lr() && std::abs(lr - *checkpoint.next_lr()) > kSameLr * std::abs(*checkpoint.next_lr())) {
    warnings.push_back(
        fmt::format("the schedule is not that of {}: step {} would have had learning rate {:.6g}, where this run's "
                    "schedule has {:.6g}; to go on as before, give the same scheduler and total_num_steps.",
                    checkpoint.folder().string(), progress.step + 1, *checkpoint.next_lr(), lr));
  }
  return {.step = progress.step,
          .windows_seen = progress.windows_seen,
          .tokens_seen = progress.windows_seen * setup.config.seq_length};
}

}  // namespace

std::string checkpoint_tag(const RunConfig& config, int64_t step) {
  return fmt::format("{}-{}steps", config.model_type, step);
}

namespace {

// A checkpoint that cannot be read; the message says which and why.
class Unusable : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A sentence about a checkpoint without what a user would have to do about it, where the run does it itself.
std::string without_remedy(std::string text) {
  text.erase(std::min(text.find(io::kChooseAnother), text.size()));
  while (text.ends_with(' ') || text.ends_with(':') || text.ends_with(';')) text.pop_back();
  return text;
}

io::ResumeCandidates candidates_of(const RunConfig& config) {
  if (config.resume_from_checkpoint.empty()) return io::resume_candidates(config.checkpoint_dir, config.model_type);
  const fs::path folder = config.resume_from_checkpoint;
  // A folder of checkpoints, or the checkpoint that the user wants and no other.
  io::ResumeCandidates candidates;
  if (!fs::exists(folder / io::kManifestName)) candidates = io::resume_candidates(folder, config.model_type);
  if (candidates.folders.empty()) candidates.folders.push_back(io::find_checkpoint(folder));
  return candidates;
}

// Throws Unusable, on all ranks, where the checkpoint is damaged, and the errors of run_on_all_ranks where the run
// cannot go on from it although it is not.
RunPosition restore(const fs::path& checkpoint, const RunSetup& setup, const std::vector<UnitSpec>& units,
                    parallel::ZeroEngine& engine, ProcessGroup& group, std::vector<std::string>& warnings) {
  std::optional<io::CheckpointReader> reader;
  try {
    run_on_all_ranks(group, [&] { reader.emplace(checkpoint); });
  } catch (const Error& error) {
    throw Unusable(error.what());
  }
  run_on_all_ranks(group, [&] {
    io::check_same_model(reader->units(), units, checkpoint);
    if (reader->progress().seed != setup.config.seed) {
      throw_user_error(
          "{} was trained with --seed {}, this run has --seed {}: the order of the data would change; give the same "
          "seed",
          checkpoint.string(), reader->progress().seed, setup.config.seed);
    }
  });
  bool readable = true;
  try {
    engine.restore(
        [&](size_t unit, StateKind kind, int64_t begin, std::span<float> out) {
          readable = false;
          reader->read(units[unit].name, kind, begin, out);
          readable = true;
        },
        group);
  } catch (const Error& error) {
    if (error.scope() != ErrorScope::kAllRanks) throw;
    const std::vector<std::string> others = group.all_gather(readable ? "readable" : "");
    if (std::find(others.begin(), others.end(), "") == others.end()) throw;
    throw Unusable(error.what());
  }
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

}  // namespace

std::optional<Resumed> resume_run(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                  parallel::ZeroEngine& engine, ProcessGroup& group,
                                  std::vector<std::string>& warnings) {
  const RunConfig& config = setup.config;
  if (config.resume_from_checkpoint == "none") return std::nullopt;
  // Rank 0's view of the folder holds for all.
  std::string listed;
  run_on_all_ranks(group, [&] {
    if (group.rank() != 0) return;
    const io::ResumeCandidates candidates = candidates_of(config);
    if (!candidates.problem_of_latest.empty() && config.resume_strict) {
      throw_user_error("{}; name a checkpoint with --resume_from_checkpoint, or leave out --resume_strict",
                       candidates.problem_of_latest);
    }
    listed = candidates.problem_of_latest;
    for (const fs::path& folder : candidates.folders) listed += '\n' + folder.string();
  });
  listed = group.all_gather(listed).front();
  std::istringstream lines(listed);
  std::string problem;
  std::getline(lines, problem);
  std::vector<fs::path> folders;
  for (std::string line; std::getline(lines, line);) folders.emplace_back(line);

  if (folders.empty() && !problem.empty()) throw UserError(problem, ErrorScope::kAllRanks);

  std::string first_problem = without_remedy(problem);
  for (const fs::path& folder : folders) {
    try {
      const RunPosition position = restore(folder, setup, units, engine, group, warnings);
      if (!first_problem.empty()) {
        warnings.push_back(fmt::format("{}: the run goes on from {}, the newest checkpoint that is whole.",
                                       first_problem, folder.string()));
      }
      return Resumed{folder, position};
    } catch (const Unusable& error) {
      if (config.resume_strict || folders.size() == 1) throw UserError(error.what(), ErrorScope::kAllRanks);
      if (first_problem.empty()) {
        first_problem = without_remedy(error.what());
      } else {
        warnings.push_back(without_remedy(error.what()) + ".");
      }
    }
  }
  if (first_problem.empty()) return std::nullopt;
  throw UserError(
      fmt::format("{}; no other checkpoint beside it is whole, so give --resume_from_checkpoint another folder, or none "
                  "to start anew",
                  first_problem),
      ErrorScope::kAllRanks);
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
                       .run_config_json = config.ds_config_json},
          .shards = checkpoint_shards(config, units, engine, rank),
          .model_type = config.model_type,
          .keep_last = config.keep_last};
}

}  // namespace mpzero
