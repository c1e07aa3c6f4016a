#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/origin.hpp"
#include "app/flags/settings.hpp"

// What a run validates on: --validation_data, --validation_sequences, and the older --validation_batches.
namespace mpzero {

// Reads FILE, or a list: NAME=FILE,NAME=FILE, where a set without a name has its file's. A "=" after a "/" belongs to a
// path, and the path of an existing file is one file, whatever its name. Throws UserError naming the flag (`flag`,
// without dashes) and the set: two sets of one name, other characters in a name, no path.
void read_validation_data(CommandLine& line, const std::string& flag, const std::string& text);
// As read_validation_data reads it.
std::string show_validation_data(const Settings& settings);
std::string show(const ValidationFile& file);

// The key of a set's loss in the metrics file: "validation_loss" (of several sets their mean), and of the set wiki
// "validation_wiki_loss".
std::string validation_loss_key(const std::string& set);

// Sets validation_sequences from --validation_batches, where that is given: micro-batches of each rank, of which
// `sequences_of_batch` (micro-batch x ranks) are read on all ranks together. Throws UserError where both are given.
void settle_validation(const CommandLine& line, int64_t sequences_of_batch, Settings& settings, Origins& origins,
                       std::vector<std::string>& warnings);

}  // namespace mpzero
