#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero::io {

// The folder with the files of a checkpoint's tokenizer, as far as it is known: that of the run's initial weights, or
// the one that its token file was made with. Empty: none of them is a folder with a tokenizer.
std::filesystem::path tokenizer_folder(const StoredCheckpoint& checkpoint);

// The name of the tokenizer that the run's token file was made with; empty: not recorded.
std::string recorded_tokenizer(const StoredCheckpoint& checkpoint);

// Whether the folder has the files of a tokenizer that Hugging Face's libraries read.
bool holds_tokenizer(const std::filesystem::path& folder);

// Throws UserError where `folder` holds no tokenizer.
void check_tokenizer(const std::filesystem::path& folder);

// Copies the files of a tokenizer, and generation_config.json, from `folder` into `output`, which exists. Files that
// are there already stay, unless `replaces`. Returns the names of those copied. Throws UserError as check_tokenizer(),
// and where a file cannot be copied.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& output,
                                        bool replaces);

}  // namespace mpzero::io
