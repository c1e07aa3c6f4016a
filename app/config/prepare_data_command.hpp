#pragma once

#include <string>

#include "app/flags/options.hpp"

namespace mpzero {

// Returns the app/prepare_data.py command that creates the token file `path` from --dataset and --tokenizer. If `path`
// is --train_data, the command also creates a missing --validation_data. If only --validation_data is missing, the
// command uses the dataset's validation split.
std::string prepare_data_command(const CommandLine& command_line, const std::string& path);

// Returns the command that adds checksums to the token file `path`.
std::string rewrite_data_command(const std::string& path);

}  // namespace mpzero
