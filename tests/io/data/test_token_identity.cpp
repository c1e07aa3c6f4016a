#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/data/token_identity.hpp"
#include "io/hdf5/file.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

namespace mpzero::io {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr int64_t kVocabulary = 1000;

std::vector<uint16_t> some_tokens() {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 5000; ++i) tokens.push_back(static_cast<uint16_t>(i * 7 % kVocabulary));
  return tokens;
}

TEST_CASE("tokens are identified by the XXH3 of their bytes, regardless of the file name") {
  const TemporaryFolder folder;
  const std::vector<uint16_t> tokens = some_tokens();
  write_token_file(folder / "train.h5", tokens, kVocabulary);
  const TokenIdentity identity = read_token_identity(folder / "train.h5");
  CHECK(identity.num_tokens == 5000);
  CHECK(identity.tokens_xxh3 == to_hex(checksum(std::as_bytes(std::span(tokens)))));
  CHECK(identity.documents_xxh3.empty());
  CHECK(show(identity) == "5000 tokens (" + identity.tokens_xxh3.substr(0, 8) + ")");

  fs::copy_file(folder / "train.h5", folder / "copy.h5");
  CHECK(read_token_identity(folder / "copy.h5") == identity);
  // Other documents give the same windows.
  write_token_file(folder / "documents.h5", tokens, kVocabulary, {0, 100, 5000});
  CHECK(same_tokens(read_token_identity(folder / "documents.h5"), identity) == true);
}

TEST_CASE("a different or additional token changes the identity") {
  const TemporaryFolder folder;
  std::vector<uint16_t> tokens = some_tokens();
  write_token_file(folder / "train.h5", tokens, kVocabulary);
  const TokenIdentity identity = read_token_identity(folder / "train.h5");
  tokens[3210] ^= 1;
  write_token_file(folder / "flipped.h5", tokens, kVocabulary);
  CHECK(same_tokens(read_token_identity(folder / "flipped.h5"), identity) == false);
  tokens[3210] ^= 1;
  tokens.push_back(0);
  write_token_file(folder / "longer.h5", tokens, kVocabulary);
  CHECK(same_tokens(read_token_identity(folder / "longer.h5"), identity) == false);
}

TEST_CASE("a hash in the file is used instead of reading the tokens") {
  const TemporaryFolder folder;
  write_token_file(folder / "train.h5", some_tokens(), kVocabulary);
  const TokenIdentity read = read_token_identity(folder / "train.h5");
  hdf5::File file = hdf5::File::create(folder / "marked.h5");
  {
    hdf5::Dataset tokens = file.create_dataset<uint16_t>("tokens", 5000);
    tokens.write(0, std::span<const uint16_t>(some_tokens()));
    tokens.set_attribute(kTokensHashName, read.tokens_xxh3);
  }
  add_attributes(file, kVocabulary);
  file.close();
  // The file has no documents, and no bytes of the tokens may be read.
  CHECK(read_token_identity(folder / "marked.h5", /*max_bytes=*/0) == read);
}

TEST_CASE("an invalid hash is refused with the file name") {
  const TemporaryFolder folder;
  for (const std::string hash : {"", "12345678", "123456789abcdef0f", "xyz3456789abcdef",
                                 "1234567\xff\xfe"
                                 "9abcdef",
                                 "123456789abcdef "}) {
    INFO(hash);
    hdf5::File file = hdf5::File::create(folder / "marked.h5");
    {
      hdf5::Dataset tokens = file.create_dataset<uint16_t>("tokens", 5000);
      tokens.write(0, std::span<const uint16_t>(some_tokens()));
      tokens.set_attribute(kTokensHashName, hash);
    }
    file.close();
    std::string message;
    try {
      read_token_identity(folder / "marked.h5");
    } catch (const UserError& error) {
      message = error.what();
    }
    CHECK_THAT(message, Catch::Contains((folder / "marked.h5").string()) && Catch::Contains("xxh3_64") &&
                            Catch::Contains("16 hexadecimal digits"));
  }
}

TEST_CASE("large files without a hash are distinguished by their documents") {
  const TemporaryFolder folder;
  const std::vector<uint16_t> tokens = some_tokens();
  constexpr int64_t kBytes = 5000 * 2;
  write_token_file(folder / "train.h5", tokens, kVocabulary, {0, 100, 200, 5000});
  write_token_file(folder / "same.h5", tokens, kVocabulary, {0, 100, 200, 5000});
  write_token_file(folder / "other.h5", tokens, kVocabulary, {0, 100, 201, 5000});
  CHECK(read_token_identity(folder / "train.h5", kBytes).documents_xxh3.empty());
  const TokenIdentity identity = read_token_identity(folder / "train.h5", kBytes - 1);
  CHECK(identity.tokens_xxh3.empty());
  CHECK(identity.documents_xxh3.size() == 16);
  CHECK(same_tokens(identity, read_token_identity(folder / "same.h5", kBytes - 1)) == true);
  CHECK(same_tokens(identity, read_token_identity(folder / "other.h5", kBytes - 1)) == false);
  // No hash in common: an equal number of tokens proves nothing.
  CHECK_FALSE(same_tokens(identity, read_token_identity(folder / "same.h5", kBytes)).has_value());
  CHECK_THROWS_AS(read_token_identity(folder / "none.h5"), UserError);
}

TEST_CASE("32-bit tokens also have an identity") {
  const TemporaryFolder folder;
  const std::vector<uint32_t> tokens{70000, 1, 2, 3};
  write_token_file(folder / "train.h5", tokens, 100000);
  CHECK(read_token_identity(folder / "train.h5").tokens_xxh3 == to_hex(checksum(std::as_bytes(std::span(tokens)))));
}

TEST_CASE("a mixture of text and chat data has the end of turn and the template of the chat data") {
  const TokenIdentity text{.num_tokens = 3, .tokens_xxh3 = "a", .documents_xxh3 = {}, .tokenization = {}};
  TokenIdentity chat{.num_tokens = 4, .tokens_xxh3 = "b", .documents_xxh3 = {}, .tokenization = {}};
  chat.tokenization.end_of_turn_token_id = 9;
  chat.tokenization.chat_template = "{{ messages }}";
  for (const std::vector<TokenIdentity>& sources : {std::vector{text, chat}, std::vector{chat, text}}) {
    CHECK(identity_of(sources).tokenization == chat.tokenization);
  }
}

}  // namespace
}  // namespace mpzero::io
