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
  std::optional<Resumed> resumed;                 // std::nullopt: the run would start from step 0
  std::optional<std::filesystem::path> moved_to;  // folder to which --overwrite would move other runs' checkpoints
};

// Predicts which checkpoint a run would resume from, with the logic of resume_run(). Throws UserError if the run would
// fail to start: --checkpoint_dir is not writable or contains checkpoints of another run, the checkpoint has a
// different model, or the weights of --init_from do not match the model or the run's initial weights. Writes no files
// and reads no optimizer states. Reads the weights of --init_from only if their path has changed.
ResumePreview preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                             std::vector<std::string>& warnings);

}  // namespace mpzero
