#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/flags/origin.hpp"
#include "app/flags/settings.hpp"

// The flags --validation_data, --validation_sequences and --validation_batches (deprecated).
namespace mpzero {

// Parses FILE or a list NAME=FILE,NAME=FILE. In a list, the default name is the file's stem. A "=" after a "/" is part
// of the path, and the path of an existing file is never split. Throws UserError, with `flag` (without leading dashes)
// and the set in the message, if a name is duplicate or invalid, or if an item has no path.
void read_validation_data(CommandLine& line, const std::string& flag, const std::string& text);
// Inverse of read_validation_data().
std::string show_validation_data(const Settings& settings);
std::string show(const ValidationFile& file);

// Returns the key of a set's loss in the metrics file: "validation_wiki_loss" for the set "wiki", "validation_loss" for
// an unnamed set and for the mean of all sets.
std::string validation_loss_key(const std::string& set);

// Converts --validation_batches (micro-batches per rank), if set, to validation_sequences. `sequences_of_batch`:
// micro-batch size x ranks. Throws UserError if --validation_sequences is also set.
void settle_validation(const CommandLine& line, int64_t sequences_of_batch, Settings& settings, Origins& origins,
                       std::vector<std::string>& warnings);

}  // namespace mpzero
