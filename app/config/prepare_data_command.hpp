#pragma once

#include <string>

#include "app/flags/options.hpp"

namespace mpzero {

// The command that makes the data file `path` from what --dataset and --tokenizer name. For --train_data it makes a
// missing --validation_data along with it; for --validation_data alone it takes the data set's validation split.
std::string prepare_data_command(const CommandLine& command_line, const std::string& path);

// The command that gives the token file `path` checksums.
std::string rewrite_data_command(const std::string& path);

}  // namespace mpzero
