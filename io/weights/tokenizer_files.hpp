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

// Receives a sentence without its period.
using Warn = std::function<void(const std::string&)>;

// The name of the built-in tokenizer, which has no files.
inline constexpr const char* kBytesTokenizer = "bytes";

// The folder with a checkpoint's tokenizer, if known: that of the run's initial weights, or of the tokenizer that made
// its token file. Skips a tokenizer.json whose hash differs from the token file's record and, with a warning, an
// unreadable one. Empty: neither is a folder with a tokenizer, or the tokenizer is the built-in one.
std::filesystem::path tokenizer_folder(const StoredCheckpoint& checkpoint, const Warn& warn);

// The name of the tokenizer that made the run's token file; empty: not recorded.
std::string recorded_tokenizer(const StoredCheckpoint& checkpoint);

// How the run's tokens were made, from its recorded settings; empty for a run of an older version.
Tokenization recorded_tokenization(const StoredCheckpoint& checkpoint);

// For an unknown vocabulary size.
inline constexpr int64_t kAnyVocabulary = std::numeric_limits<int64_t>::max();

// The eos_token_id of the folder's generation_config.json, a number or a list of them; empty: none. Omits ids outside
// the vocabulary, with a warning. Throws UserError for anything else.
std::vector<int64_t> generation_eos_ids(const std::filesystem::path& folder, int64_t vocab_size, const Warn& warn);

// Rows of the embedding; kAnyVocabulary if the checkpoint holds none.
int64_t vocab_size_of(const StoredCheckpoint& checkpoint);

// The ids, besides those of config.json, that end a text of the checkpoint's model: EOS and the end of turn of its
// token file, and those of the generation_config.json in `tokenizer`, its tokenizer_folder(), which may be empty. Skips
// an unreadable file with a warning: the checkpoint is complete without it.
std::vector<int64_t> more_eos_ids(const StoredCheckpoint& checkpoint, const std::filesystem::path& tokenizer,
                                  const Warn& warn);

// The hash of the folder's tokenizer.json, as in Tokenization; empty: there is none.
std::string tokenizer_hash_of(const std::filesystem::path& folder);

// Whether the folder has the files of a Hugging Face tokenizer.
bool holds_tokenizer(const std::filesystem::path& folder);

// Throws UserError if `folder` holds no tokenizer.
void check_tokenizer(const std::filesystem::path& folder);

inline constexpr const char* kEosKey = "eos_token_id";
inline constexpr const char* kChatTemplateName = "chat_template.jinja";

// Sets eos_token_id of the generation_config.json in `folder` to that of `config`, a model's config.json, and
// bos_token_id and pad_token_id if both files have them. If the file is missing, `creates` creates it with these keys.
void agree_with_config(const std::filesystem::path& folder, const std::string& config, bool creates = false);

// Copies a tokenizer's files and generation_config.json from `folder` into the existing folder `output`. Keeps existing
// files unless `replaces`; skips a generation_config.json that is not JSON. Returns the names of the copied files.
// Throws UserError as check_tokenizer() does, and if a file cannot be copied.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& output,
                                        bool replaces);

}  // namespace mpzero::io
