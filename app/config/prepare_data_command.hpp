#pragma once

#include <string>

#include "app/flags/options.hpp"

namespace mpzero {

// Returns the command that creates the token file `path` from --dataset and --tokenizer. The command for --train_data
// also creates a missing --validation_data. The command for --validation_data uses the validation split.
std::string prepare_data_command(const CommandLine& command_line, const std::string& path);

// Returns the command that adds checksums to the token file `path`.
std::string rewrite_data_command(const std::string& path);

}  // namespace mpzero
