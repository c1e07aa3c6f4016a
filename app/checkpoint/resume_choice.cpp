#include "app/checkpoint/resume_choice.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "app/checkpoint/run_folder.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/damaged.hpp"
#include "io/files/retry.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

io::ResumeCandidates candidates_of(const RunConfig& config) {
  if (config.resume_from_checkpoint.empty()) return io::resume_candidates(config.checkpoint_dir, config.model_type);
  const fs::path folder = config.resume_from_checkpoint;
  // A single checkpoint is the only candidate.
  io::ResumeCandidates candidates;
  if (!io::looks_like_checkpoint(folder)) candidates = io::resume_candidates(folder, config.model_type);
  if (candidates.folders.empty()) candidates.folders.push_back(io::find_checkpoint(folder));
  return candidates;
}

void check_one_run(const io::ResumeCandidates& candidates) {
  if (candidates.newest_of_runs.size() < 2) return;
  std::vector<std::string> ways;
  for (const io::CatalogEntry& entry : candidates.newest_of_runs) {
    ways.push_back(fmt::format("--resume_from_checkpoint {} ({})", entry.folder.string(), io::show_run(*entry.run_id)));
  }
  throw_user_error("{}, so its run is unknown, and the folder contains checkpoints of {} runs; pass {}",
                   without_remedy(candidates.problem_of_run), ways.size(), fmt::join(ways, " or "));
}

}  // namespace

std::string start_new_run(const RunConfig& config) {
  const bool is_array = parallel::process_environment("SLURM_ARRAY_TASK_ID").has_value();
  const bool can_overwrite =
      config.init_from.empty() || !starts_from_any_of(config, io::list_checkpoints(config.checkpoint_dir));
  return fmt::format(", or start a new run in a different --checkpoint_dir{}{}",
                     is_array ? ", e.g. checkpoints/$SLURM_ARRAY_TASK_ID for each array task" : "",
                     can_overwrite ? ", or with --overwrite, which moves the old run to old-<n>" : "");
}

std::string without_remedy(std::string text) {
  for (const std::string_view remedy : {std::string_view(io::kChooseAnother), std::string_view("write the name of")}) {
    text.erase(std::min(text.find(remedy), text.size()));
  }
  while (text.ends_with(' ') || text.ends_with(':') || text.ends_with(';')) text.pop_back();
  return text;
}

ResumeChoices choose_checkpoints(const RunConfig& config, ProcessGroup& group) {
  ResumeChoices choices;
  std::vector<std::string> folders;
  run_on_all_ranks(group, [&] {
    if (group.rank() != 0) return;
    io::ResumeCandidates candidates;
    io::retry_reading([&] { candidates = candidates_of(config); });
    if (!candidates.problem_of_latest.empty() && config.resume_strict) {
      throw_user_error("{}; pass a checkpoint with --resume_from_checkpoint, or omit --resume_strict",
                       candidates.problem_of_latest);
    }
    // --resume_strict disables the fallback to another checkpoint.
    if (!config.resume_strict) check_one_run(candidates);
    choices.run = candidates.run;
    choices.problem = candidates.problem_of_latest;
    if (!candidates.left_out.empty()) {
      choices.left_out = fmt::format("not tried: {}", fmt::join(candidates.left_out, ", "));
    }
    choices.problem_of_run = candidates.problem_of_run;
    for (const fs::path& folder : candidates.folders) folders.push_back(folder.string());
  });
  auto& [id, init_from, init_from_hash, init_adapters, init_adapters_hash] = choices.run;
  std::tie(id, init_from, init_from_hash, init_adapters, init_adapters_hash, choices.problem, choices.left_out,
           choices.problem_of_run, folders) =
      broadcast(group, std::tuple(id, init_from, init_from_hash, init_adapters, init_adapters_hash, choices.problem,
                                  choices.left_out, choices.problem_of_run, folders));
  choices.folders.assign(folders.begin(), folders.end());
  return choices;
}

}  // namespace mpzero
