#include "app/checkpoint/resume_preview.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "app/checkpoint/run_folder.hpp"
#include "app/checkpoint/run_state.hpp"
#include "base/error.hpp"
#include "base/process_group.hpp"
#include "io/adapters/peft_files.hpp"
#include "io/checkpoint_dir/old_run.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;

// Throws UserError if the folder, or files in it, cannot be created.
void check_could_be_written(const fs::path& folder) {
  std::error_code ignored;
  fs::path existing = fs::absolute(folder);
  while (existing.has_relative_path() && fs::symlink_status(existing, ignored).type() == fs::file_type::not_found) {
    existing = existing.parent_path();
  }
  int error = 0;
  if (!fs::is_directory(existing, ignored)) {
    error = ENOTDIR;
  } else if (::access(existing.c_str(), W_OK | X_OK) != 0) {
    error = errno;
  }
  if (error == 0) return;
  throw_user_error("--checkpoint_dir {} is not writable ({}: {}); choose a different folder.", folder.string(),
                   existing.string(), std::generic_category().message(error));
}

}  // namespace

ResumePreview preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                             std::vector<std::string>& warnings) {
  const RunConfig& config = setup.config;
  const std::filesystem::path folder = config.checkpoint_dir;
  SingleProcess alone;
  const auto no_states = [](const io::StoredCheckpoint&) {};
  check_could_be_written(folder);
  ResumePreview preview;
  preview.resumed = resume_with(setup, units, no_states, WeightsCheck::kContentOfOtherPath, alone, warnings);
  io::RunRecord run = preview.resumed ? preview.resumed->run : io::RunRecord{};
  if (run.id.empty()) run.id = io::new_run_id();
  if (!checkpoints_to_move(io::list_checkpoints(folder), config, run, preview.resumed).empty()) {
    preview.moved_to = folder / io::next_old_name(folder);
  }
  if (!preview.resumed && !config.init_from.empty()) {
    check_initial_weights(config.init_from, model_units(setup.model.base()), warnings);
    if (!config.init_adapters.empty()) io::open_adapters(config.init_adapters, model_units(setup.model));
  }
  return preview;
}

}  // namespace mpzero
