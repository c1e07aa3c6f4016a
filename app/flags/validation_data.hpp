#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/origin.hpp"
#include "app/flags/settings.hpp"

// Validation flags: --validation_data, --validation_sequences, and the deprecated --validation_batches.
namespace mpzero {

// Parses FILE, or a list: NAME=FILE,NAME=FILE; a set without a name is named after its file. A "=" after a "/" is part
// of the path, and the path of an existing file is never split. Throws UserError naming the flag (`flag`, without
// dashes) and the set: duplicate name, invalid character in a name, missing path.
void read_validation_data(CommandLine& line, const std::string& flag, const std::string& text);
// The inverse of read_validation_data.
std::string show_validation_data(const Settings& settings);
std::string show(const ValidationFile& file);

// The key of a set's loss in the metrics file: "validation_wiki_loss" for the set wiki, "validation_loss" for a set
// without a name and for the mean of several sets.
std::string validation_loss_key(const std::string& set);

// Sets validation_sequences from --validation_batches (micro-batches per rank), if given. `sequences_of_batch`:
// micro-batch x ranks. Throws UserError if both flags are given.
void settle_validation(const CommandLine& line, int64_t sequences_of_batch, Settings& settings, Origins& origins,
                       std::vector<std::string>& warnings);

}  // namespace mpzero
