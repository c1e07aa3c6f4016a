#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/data/tokenization.hpp"

namespace mpzero::io {

// The folder with the files of a checkpoint's tokenizer, as far as it is known: that of the run's initial weights, or
// the one that its token file was made with. A tokenizer.json with another hash than the token file recorded is passed
// over. Empty: none of them is a folder with a tokenizer.
std::filesystem::path tokenizer_folder(const StoredCheckpoint& checkpoint);

// The name of the tokenizer that the run's token file was made with; empty: not recorded.
std::string recorded_tokenizer(const StoredCheckpoint& checkpoint);

// How the tokens of the run were made, as its settings record it; empty for a run of an older version.
Tokenization recorded_tokenization(const StoredCheckpoint& checkpoint);

// The eos_token_id of the folder's generation_config.json, a number or a list of them; empty: none. Throws UserError
// for anything else.
std::vector<int64_t> generation_eos_ids(const std::filesystem::path& folder);

// The ids, beside those of the model's config.json, that end a text of the checkpoint's model: of its token file, and
// of the generation_config.json beside its tokenizer.
std::vector<int64_t> more_eos_ids(const StoredCheckpoint& checkpoint);

// The hash of the folder's tokenizer.json, as Tokenization has it; empty: there is none.
std::string tokenizer_hash_of(const std::filesystem::path& folder);

// Whether the folder has the files of a tokenizer that Hugging Face's libraries read.
bool holds_tokenizer(const std::filesystem::path& folder);

// Throws UserError where `folder` holds no tokenizer.
void check_tokenizer(const std::filesystem::path& folder);

inline constexpr const char* kEosKey = "eos_token_id";

// Gives the generation_config.json in `folder`, if it is there, the eos_token_id of `config`, a model's config.json,
// and its bos_token_id and pad_token_id where both files have one.
void agree_with_config(const std::filesystem::path& folder, const std::string& config);

// Copies the files of a tokenizer, and generation_config.json, from `folder` into `output`, which exists. Files that
// are there already stay, unless `replaces`. Returns the names of those copied. Throws UserError as check_tokenizer(),
// and where a file cannot be copied.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& output,
                                        bool replaces);

}  // namespace mpzero::io
