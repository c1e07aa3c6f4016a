#include <fstream>

#include "base/error.hpp"
#include "io/data/tokenization.hpp"
#include "tests/catch.hpp"
#include "tests/io/temporary_folder.hpp"

namespace mpzero::io {
namespace {

std::string hash_of_text(const std::string& text) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "tokenizer.json") << text;
  return hash_of(read_tokenizer_json(folder / "tokenizer.json"));
}

}  // namespace

// Oracle: xxhash.xxh3_64_hexdigest of Python over "0\ta\n1\t\u00e9\n3\t<s>\n".
TEST_CASE("a tokenizer is identified by its ids and tokens, regardless of their order in the file") {
  constexpr const char* kExpected = "xxh3:1fc44e230940ab84";
  CHECK(hash_of_text(R"({"model": {"vocab": {"é": 1, "a": 0}}, "added_tokens": [{"id": 3, "content": "<s>"}]})") ==
        kExpected);
  CHECK(hash_of_text(R"({"model": {"vocab": {"a": 0, "\u00e9": 1, "<s>": 3}}, "x": 1})") == kExpected);
  // Unigram: the index is the id; an added token wins.
  CHECK(hash_of_text(R"({"model": {"vocab": [["a", -1.5], ["b", -2]]},
                         "added_tokens": [{"id": 3, "content": "<s>"}, {"id": 1, "content": "é"}]})") == kExpected);
  CHECK(hash_of_text(R"({"model": {"vocab": {"a": 1, "é": 0, "<s>": 3}}})") != kExpected);
}

TEST_CASE("regular ids are those that occur in text") {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "tokenizer.json")
      << R"({"model": {"vocab": {"a": 0, "b": 3}}, "added_tokens": [{"id": 9, "content": "<s>"}]})";
  const TokenizerVocabulary vocabulary = read_tokenizer_json(folder / "tokenizer.json");
  CHECK((vocabulary.regular == 4 && vocabulary.size() == 10));
  std::ofstream(folder / "vocab.json") << R"({"a": 0, "b": 6})";
  CHECK(read_vocab_json(folder / "vocab.json").regular == 7);
  std::ofstream(folder / "vocab.json") << R"({"a": -1})";
  CHECK_THROWS_AS(read_vocab_json(folder / "vocab.json"), UserError);
}

}  // namespace mpzero::io
