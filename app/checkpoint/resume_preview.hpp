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
  std::optional<Resumed> resumed;                 // std::nullopt: the run would start from the beginning
  std::optional<std::filesystem::path> moved_to;  // folder to which --overwrite would move checkpoints of other runs
};

// The outcome of a start with the existing checkpoints, as resume_run() decides it. Throws UserError if the start
// would be refused: another model, checkpoints of another run in --checkpoint_dir, a folder that is not writable, or
// weights of --init_from that do not fit or are not the run's initial weights. Does not read states, reads weights only
// to compare them with those of another path, and writes nothing.
ResumePreview preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                             std::vector<std::string>& warnings);

}  // namespace mpzero
