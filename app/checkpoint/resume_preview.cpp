#include "app/checkpoint/resume_preview.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/checkpoint/resume_checks.hpp"
#include "app/checkpoint/resume_choice.hpp"
#include "app/checkpoint/run_folder.hpp"
#include "app/checkpoint/run_state.hpp"
#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint_dir/formats.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

Resumed preview(const fs::path& folder, const io::RunRecord& of_candidates, const RunSetup& setup,
                const std::vector<UnitSpec>& units, std::vector<std::string>& warnings) {
  const std::unique_ptr<io::StoredCheckpoint> stored = io::open_checkpoint(folder);
  try {
    check_resumable(*stored, setup, units);
  } catch (const Damaged&) {
    throw;
  } catch (const UserError& error) {
    if (!setup.config.resume_from_checkpoint.empty()) throw;
    throw UserError(error.what() + std::string(kStartNewRun));
  }
  ResumeNotes notes;
  if (setup.missing_data.empty()) notes = compare_runs(*stored, setup);
  for (const std::string& warning : stored->warnings()) warnings.push_back(warning);
  warnings.insert(warnings.end(), notes.warnings.begin(), notes.warnings.end());
  const bool has_id = !stored->run().id.empty();
  return {.checkpoint = folder,
          .position = position_of(*stored, setup.config),
          .run = has_id ? stored->run() : of_candidates,
          .checkpoint_has_id = has_id,
          .changes = std::move(notes.changes),
          .schedule = notes.schedule};
}

// The first of the candidates that is not damaged.
std::optional<Resumed> first_whole(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                   std::vector<std::string>& warnings) {
  SingleProcess alone;
  const ResumeChoices choices = choose_checkpoints(setup.config, alone);
  if (choices.folders.empty() && !choices.problem.empty()) throw UserError(choices.problem);
  if (!choices.problem.empty()) warnings.push_back(without_remedy(choices.problem) + ".");
  for (const fs::path& folder : choices.folders) {
    try {
      return preview(folder, choices.run, setup, units, warnings);
    } catch (const Damaged& error) {
      if (setup.config.resume_strict || folder == choices.folders.back()) throw;
      warnings.push_back(without_remedy(error.what()) + ".");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Resumed> preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                      std::vector<std::string>& warnings) {
  const RunConfig& config = setup.config;
  std::optional<Resumed> resumed;
  if (config.resume_from_checkpoint != "none") resumed = first_whole(setup, units, warnings);
  io::RunRecord run = resumed ? resumed->run : io::RunRecord{};
  if (run.id.empty()) run.id = io::new_run_id();
  checkpoints_to_move(config, run, resumed);
  if (!resumed && !config.init_from.empty()) check_initial_weights(config.init_from, units);
  return resumed;
}

}  // namespace mpzero
