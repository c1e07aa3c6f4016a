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

// Takes a sentence without its full stop.
using Warn = std::function<void(const std::string&)>;

// The name of the built-in tokenizer, which has no files.
inline constexpr const char* kBytesTokenizer = "bytes";

// The folder with the files of a checkpoint's tokenizer, as far as it is known: that of the run's initial weights, or
// the one that its token file was made with. A tokenizer.json with another hash than the token file recorded is passed
// over; so is one that cannot be read, with a warning. Empty: none of them is a folder with a tokenizer, or the
// tokenizer is the built-in one.
std::filesystem::path tokenizer_folder(const StoredCheckpoint& checkpoint, const Warn& warn);

// The name of the tokenizer that the run's token file was made with; empty: not recorded.
std::string recorded_tokenizer(const StoredCheckpoint& checkpoint);

// How the tokens of the run were made, as its settings record it; empty for a run of an older version.
Tokenization recorded_tokenization(const StoredCheckpoint& checkpoint);

// Where it is not known.
inline constexpr int64_t kAnyVocabulary = std::numeric_limits<int64_t>::max();

// The eos_token_id of the folder's generation_config.json, a number or a list of them; empty: none. Ids outside of the
// vocabulary are left out, with a warning. Throws UserError for anything else.
std::vector<int64_t> generation_eos_ids(const std::filesystem::path& folder, int64_t vocab_size, const Warn& warn);

// Rows of the embedding; kAnyVocabulary where the checkpoint holds none.
int64_t vocab_size_of(const StoredCheckpoint& checkpoint);

// The ids, beside those of the model's config.json, that end a text of the checkpoint's model: EOS and the end of turn
// of its token file, and those of the generation_config.json in `tokenizer`, its tokenizer_folder(), which may be
// empty. A file that cannot be read is left out, with a warning: the checkpoint is whole without it.
std::vector<int64_t> more_eos_ids(const StoredCheckpoint& checkpoint, const std::filesystem::path& tokenizer,
                                  const Warn& warn);

// The hash of the folder's tokenizer.json, as Tokenization has it; empty: there is none.
std::string tokenizer_hash_of(const std::filesystem::path& folder);

// Whether the folder has the files of a tokenizer that Hugging Face's libraries read.
bool holds_tokenizer(const std::filesystem::path& folder);

// Throws UserError where `folder` holds no tokenizer.
void check_tokenizer(const std::filesystem::path& folder);

inline constexpr const char* kEosKey = "eos_token_id";
inline constexpr const char* kChatTemplateName = "chat_template.jinja";

// Gives the generation_config.json in `folder` the eos_token_id of `config`, a model's config.json, and its
// bos_token_id and pad_token_id where both files have one. If there is no such file, `creates` makes one with these
// keys.
void agree_with_config(const std::filesystem::path& folder, const std::string& config, bool creates = false);

// Copies the files of a tokenizer, and generation_config.json, from `folder` into `output`, which exists. Files that
// are there already stay, unless `replaces`; a generation_config.json that is no JSON is left out. Returns the names of
// those copied. Throws UserError as check_tokenizer(), and where a file cannot be copied.
std::vector<std::string> copy_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& output,
                                        bool replaces);

}  // namespace mpzero::io
