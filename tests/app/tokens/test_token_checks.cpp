#include "app/tokens/token_checks.hpp"
#include "base/error.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

const io::Tokenization kTokens{.tokenizer = "folder",
                               .vocab_size = 100,
                               .eos_token_id = 2,
                               .bos_token_id = 1,
                               .add_bos = true,
                               .tokenizer_hash = "xxh3:aaaaaaaaaaaaaaaa"};
// As files of older versions are.
const io::Tokenization kOld{.tokenizer = "folder",
                            .vocab_size = 100,
                            .eos_token_id = 2,
                            .bos_token_id = {},
                            .add_bos = {},
                            .tokenizer_hash = {}};
const ExpectedTokens kExpected{.model = "config.json",
                               .eos_token_ids = {5, 2},
                               .bos_token_id = 1,
                               .vocab_size = 100,
                               .weights = "weights",
                               .tokenizer_hash = "xxh3:aaaaaaaaaaaaaaaa"};

TokenFile file_of(io::Tokenization tokens, const std::string& path = "t.h5") {
  return {.flag = "--train_data", .path = path, .tokens = std::move(tokens)};
}

io::Tokenization bytes(bool is_old) {
  io::Tokenization tokens = kOld;
  tokens.tokenizer = "bytes";
  if (!is_old) tokens.add_bos = false;
  return tokens;
}

}  // namespace

TEST_CASE("tokens of the model's tokenizer, or of an unknown tokenizer, are accepted") {
  CHECK(check_tokens(file_of(kTokens), kExpected).empty());
  CHECK(check_tokens(file_of(kOld), kExpected).empty());
  ExpectedTokens unknown{.model = "config.json", .vocab_size = 100};
  CHECK(check_tokens(file_of(kTokens), unknown).empty());
  CHECK(check_tokens(file_of(bytes(false)), unknown).empty());
}

TEST_CASE("tokens of a different tokenizer are refused unless allowed") {
  io::Tokenization other = kTokens;
  other.tokenizer_hash = "xxh3:bbbbbbbbbbbbbbbb";
  for (const io::Tokenization& tokens : {other, bytes(false)}) {
    const std::string sentence = error_from([&] { check_tokens(file_of(tokens), kExpected); });
    CHECK_THAT(sentence, Contains("--train_data t.h5") && Contains("weights") && Contains("--allow_changed tokenizer"));
    ExpectedTokens allowed = kExpected;
    allowed.may_differ = true;
    CHECK(check_tokens(file_of(tokens), allowed).size() == 1);
  }
  // A run may have begun with a file of bytes that an older version made.
  CHECK(check_tokens(file_of(bytes(true)), kExpected).size() == 1);
}

TEST_CASE("sources of a mixture with different tokenizers are refused, and both are reported") {
  check_one_tokenizer(file_of(kTokens, "b.h5"), file_of(kTokens));
  check_one_tokenizer(file_of(kOld, "b.h5"), file_of(kTokens));  // too little is known of it
  io::Tokenization other = kTokens, larger = kTokens, ended = kTokens;
  other.tokenizer_hash = "xxh3:bbbbbbbbbbbbbbbb";
  larger.vocab_size += 1;
  ended.eos_token_id = 7;
  for (const io::Tokenization& tokens : {other, larger, ended, bytes(false)}) {
    const std::string sentence = error_from([&] { check_one_tokenizer(file_of(tokens, "b.h5"), file_of(kTokens)); });
    CHECK_THAT(sentence, Contains("t.h5") && Contains("b.h5"));
  }
}

TEST_CASE("token ids that do not match the model's cause a warning with both") {
  const auto only_warning = [](const io::Tokenization& tokens) {
    const std::vector<std::string> warnings = check_tokens(file_of(tokens), kExpected);
    REQUIRE(warnings.size() == 1);
    return warnings[0];
  };
  io::Tokenization tokens = kOld;
  tokens.eos_token_id = 7;
  CHECK_THAT(only_warning(tokens), Contains("id 7") && Contains("eos_token_id in config.json is 5, 2"));
  tokens = kTokens;
  tokens.bos_token_id = 8;
  CHECK_THAT(only_warning(tokens), Contains("id 8") && Contains("bos_token_id in config.json is 1"));
  tokens.add_bos = false;
  CHECK(check_tokens(file_of(tokens), kExpected).empty());
  tokens = kOld;
  tokens.vocab_size = 101;
  CHECK_THAT(only_warning(tokens), Contains("101") && Contains("100"));
}

TEST_CASE("validation data must use the tokenizer of the training data") {
  const auto compare = [](const io::Tokenization& validation, const io::Tokenization& train, bool may_differ = false) {
    return check_same_tokenizer({.flag = "--validation_data", .path = "v.h5", .tokens = validation}, file_of(train),
                                may_differ);
  };
  CHECK(compare(kTokens, kTokens).empty());
  CHECK(compare(bytes(true), bytes(false)).empty());
  io::Tokenization moved = kTokens;
  moved.tokenizer = "elsewhere/folder";
  CHECK(compare(moved, kTokens).empty());
  io::Tokenization other = kTokens;
  other.tokenizer_hash = "xxh3:bbbbbbbbbbbbbbbb";
  CHECK_THAT(error_from([&] { compare(other, kTokens); }), Contains("--validation_data v.h5") && Contains("t.h5"));
  CHECK_THAT(error_from([&] { compare(bytes(false), kTokens); }), Contains("bytes"));
  CHECK_THAT(error_from([&] { compare(kTokens, bytes(false)); }), Contains("bytes"));
  CHECK(compare(other, kTokens, true).size() == 1);
  CHECK(compare(bytes(true), kOld).size() == 1);
  io::Tokenization ends = kTokens;
  ends.eos_token_id = 3;
  ends.add_bos = false;
  CHECK(compare(ends, kTokens).size() == 2);
}

}  // namespace mpzero
