#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/data/tokenization.hpp"

namespace mpzero::io {

// Callback for a warning: one sentence without the final period.
using Warn = std::function<void(const std::string&)>;

// Name of the built-in tokenizer, which has no files.
inline constexpr const char* kBytesTokenizer = "bytes";

// Returns the folder of a checkpoint's tokenizer: the folder of the initial weights or the tokenizer recorded in the
// token file. Skips a tokenizer.json whose hash differs from the hash in the token file. Warns about and skips an
// unreadable tokenizer.json. Returns an empty path if the tokenizer is not found or is the built-in tokenizer.
std::filesystem::path tokenizer_folder(const StoredCheckpoint& checkpoint, const Warn& warn);

// Returns the name of the tokenizer of the run's token file, or an empty string if not recorded.
std::string recorded_tokenizer(const StoredCheckpoint& checkpoint);

// Returns the recorded tokenization of the run's token file, or an empty record for runs of older versions.
Tokenization recorded_tokenization(const StoredCheckpoint& checkpoint);

// Value for an unknown vocabulary size.
inline constexpr int64_t kAnyVocabulary = std::numeric_limits<int64_t>::max();

// Returns the ids in eos_token_id (a number or a list) of the folder's generation_config.json, or an empty list if the
// file or the key is missing. Warns about and omits ids outside of the vocabulary. Throws UserError for values of other
// types.
std::vector<int64_t> generation_eos_ids(const std::filesystem::path& folder, int64_t vocab_size, const Warn& warn);

// Returns the number of rows of the embedding, or kAnyVocabulary if the checkpoint contains no embedding.
int64_t vocab_size_of(const StoredCheckpoint& checkpoint);

// Returns a checkpoint's end-of-sequence ids from sources other than config.json: the EOS and end-of-turn ids of the
// token file, and eos_token_id of the generation_config.json in `tokenizer`. `tokenizer` is the tokenizer_folder(),
// which may be empty. Warns about and skips an unreadable generation_config.json because it is optional.
std::vector<int64_t> more_eos_ids(const StoredCheckpoint& checkpoint, const std::filesystem::path& tokenizer,
                                  const Warn& warn);

// Returns the hash of the folder's tokenizer.json (see Tokenization), or an empty string if the file does not exist.
std::string tokenizer_hash_of(const std::filesystem::path& folder);

// Returns true if the folder contains a Hugging Face tokenizer.
bool holds_tokenizer(const std::filesystem::path& folder);

// Throws UserError if `folder` does not contain a tokenizer.
void check_tokenizer(const std::filesystem::path& folder);

inline constexpr const char* kEosKey = "eos_token_id";
inline constexpr const char* kChatTemplateName = "chat_template.jinja";

// Copies eos_token_id from `config`, a config.json, to the generation_config.json in `folder`. Also copies bos_token_id
// and pad_token_id if both files contain them. If `creates` is true, creates a missing file with these keys.
void agree_with_config(const std::filesystem::path& folder, const std::string& config, bool creates = false);

// Copies tokenizer files and generation_config.json from `folder` to the existing folder `output`. Keeps existing files
// unless `replaces` is true. Skips a generation_config.json that is not JSON. Returns the names of the copied files.
// Throws UserError if a file cannot be copied. See check_tokenizer() for other errors.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& output,
                                        bool replaces);

}  // namespace mpzero::io
