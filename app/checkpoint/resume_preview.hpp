#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/resume.hpp"
#include "app/config/run_setup.hpp"
#include "base/parameter_spec.hpp"

namespace mpzero {

// The checkpoint that resume_run() would resume from, as its manifest and the sizes of its files tell; nothing where
// the run would start from the beginning. Throws UserError where it would refuse to start: another model, checkpoints
// of another run in --checkpoint_dir, weights of --init_from that do not fit. Neither tensors nor weights are read, and
// nothing is written. Settings are compared where the data is known (setup.missing_data is empty).
std::optional<Resumed> preview_resume(const RunSetup& setup, const std::vector<UnitSpec>& units,
                                      std::vector<std::string>& warnings);

}  // namespace mpzero
