#pragma once

#include <string>
#include <utility>
#include <vector>

#include "app/config/run_setup.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// Names and values of settings.
using ComparedSettings = std::vector<std::pair<std::string, std::string>>;

// Returns the settings that must be equal on all ranks: keys of ds_config.json, flags with their effective values, the
// model's config.json, and the sizes of the token files. Paths, ports and addresses may differ between hosts.
ComparedSettings compared_settings(const RunSetup& setup);

// Throws UserError on all ranks if a setting differs from its value on rank 0. The message contains the first such
// setting. Collective.
void check_same_settings(const RunSetup& setup, ProcessGroup& group);

}  // namespace mpzero
