#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/resume.hpp"
#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"

namespace mpzero {

struct ResumePreview {
  std::optional<Resumed> resumed;                 // nothing: the run would start from the beginning
  std::optional<std::filesystem::path> moved_to;  // where --overwrite would move the checkpoints of other runs
};

// What a start would do with the checkpoints that it finds, as resume_run() decides it. Throws UserError where it would
// refuse to start: another model, checkpoints of another run in --checkpoint_dir, a folder that it could not write to,
// weights of --init_from that do not fit or are not those that the run began with. The states are not read, weights
// only where they are compared with those of another path, and nothing is written.
ResumePreview preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                             std::vector<std::string>& warnings);

}  // namespace mpzero
