#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace mpzero::io {

// The ids of a Hugging Face tokenizer.
struct TokenizerVocabulary {
  std::map<int64_t, std::string> tokens;  // by id
  int64_t regular = 0;                    // one more than the largest id that occurs in texts

  // One more than the largest id, added tokens included.
  int64_t size() const { return tokens.empty() ? 0 : tokens.rbegin()->first + 1; }
};

// From tokenizer.json: {"model": {"vocab": {"word": id, ...}}, "added_tokens": [{"id": id, "content": "word"}, ...]}; a
// Unigram model has a list of [word, score]. An added token wins over a word of the same id. `flag` begins the
// sentences. Throws UserError naming the file.
TokenizerVocabulary read_tokenizer_json(const std::filesystem::path& file, const std::string& flag = "");

// From vocab.json: {"word": id, ...}.
TokenizerVocabulary read_vocab_json(const std::filesystem::path& file, const std::string& flag = "");

// "xxh3:" and 16 hexadecimal digits of XXH3-64 over "{id}\t{token}\n" of all ids in ascending order: the same for a
// tokenizer wherever its files are, and another one for a tokenizer with other ids. As app/prepare/encoders.py has it.
std::string hash_of(const TokenizerVocabulary& vocabulary);

}  // namespace mpzero::io
