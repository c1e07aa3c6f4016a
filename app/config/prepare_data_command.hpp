#pragma once

#include <string>

#include "app/flags/options.hpp"

namespace mpzero {

// The command that creates the token file `path` from --dataset and --tokenizer. For --train_data it also creates a
// missing --validation_data; for --validation_data alone it uses the dataset's validation split.
std::string prepare_data_command(const CommandLine& command_line, const std::string& path);

// The command that adds checksums to the token file `path`.
std::string rewrite_data_command(const std::string& path);

}  // namespace mpzero
