#include "app/checkpoint/resume_preview.hpp"

#include "app/checkpoint/run_folder.hpp"
#include "app/checkpoint/run_state.hpp"
#include "base/process_group.hpp"
#include "io/checkpoint_dir/old_run.hpp"

namespace mpzero {

ResumePreview preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                             std::vector<std::string>& warnings) {
  const RunConfig& config = setup.config;
  const std::filesystem::path folder = config.checkpoint_dir;
  SingleProcess alone;
  const auto no_states = [](const io::StoredCheckpoint&) {};
  ResumePreview preview;
  preview.resumed = resume_with(setup, units, no_states, WeightsCheck::kContentOfOtherPath, alone, warnings);
  io::RunRecord run = preview.resumed ? preview.resumed->run : io::RunRecord{};
  if (run.id.empty()) run.id = io::new_run_id();
  if (!checkpoints_to_move(config, run, preview.resumed).empty()) preview.moved_to = folder / io::next_old_name(folder);
  if (!preview.resumed && !config.init_from.empty()) check_initial_weights(config.init_from, units);
  return preview;
}

}  // namespace mpzero
