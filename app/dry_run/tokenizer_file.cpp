#include "app/dry_run/tokenizer_file.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "io/data/tokenization.hpp"

namespace mpzero {

namespace fs = std::filesystem;

namespace {

// 256 bytes and end of text, as in app/prepare/encoders.py.
constexpr TokenizerSize kBytes{.regular = 257, .all = 257};

constexpr const char* kFlag = "--tokenizer";

TokenizerSize size_of(const io::TokenizerVocabulary& vocabulary) {
  return {.regular = vocabulary.regular, .all = vocabulary.size()};
}

// Returns true if `tokenizer` can only be a path, by the same rule as in app/prepare/encoders.py.
bool is_path(const std::string& tokenizer) {
  return tokenizer.ends_with(".json") || tokenizer.find_first_of("/.~") == 0 ||
         std::count(tokenizer.begin(), tokenizer.end(), '/') > 1;
}

}  // namespace

std::optional<TokenizerSize> read_tokenizer_size(const std::string& tokenizer) {
  if (tokenizer == "bytes") return kBytes;
  const fs::path path = tokenizer;
  if (fs::is_regular_file(path)) return size_of(io::read_tokenizer_json(path, kFlag));
  if (fs::is_directory(path)) {
    if (fs::exists(path / "tokenizer.json")) return size_of(io::read_tokenizer_json(path / "tokenizer.json", kFlag));
    if (fs::exists(path / "vocab.json") && fs::exists(path / "merges.txt")) {
      return size_of(io::read_vocab_json(path / "vocab.json", kFlag));
    }
    throw_user_error("--tokenizer {}: the folder contains neither tokenizer.json nor vocab.json and merges.txt.",
                     tokenizer);
  }
  if (!is_path(tokenizer)) return std::nullopt;
  throw_user_error("--tokenizer {} does not exist; pass a file, a folder, a Hugging Face name, or bytes.", tokenizer);
}

}  // namespace mpzero
