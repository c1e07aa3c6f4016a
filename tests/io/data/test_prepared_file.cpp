// Reads the file that app/prepare_data.py has just made from assets/tiny_corpus/validation.txt (a ctest fixture): its
// bytes and the end-of-text id 256.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "io/data/token_dataset.hpp"
#include "tests/catch.hpp"

namespace {

void check_tokens(const std::string& name, int64_t vocab_size) {
  const char* const folder = std::getenv("MPZERO_PREPARED_FOLDER");
  REQUIRE(folder != nullptr);
  std::ifstream text(MPZERO_SOURCE_DIR "/assets/tiny_corpus/validation.txt", std::ios::binary);
  std::vector<int64_t> expected;
  for (std::istreambuf_iterator<char> byte(text), end; byte != end; ++byte) {
    expected.push_back(static_cast<unsigned char>(*byte));
  }
  REQUIRE(expected.size() > 10000);
  expected.push_back(256);

  const auto seq_length = static_cast<int64_t>(expected.size()) - 1;
  const mpzero::io::TokenDataset dataset(std::string(folder) + "/" + name, seq_length);
  CHECK(dataset.vocab_size() == vocab_size);
  CHECK(dataset.eos_token_id() == 256);
  CHECK(dataset.tokenizer() == "bytes");
  CHECK(dataset.num_documents() == 1);
  REQUIRE(dataset.num_tokens() == static_cast<int64_t>(expected.size()));
  std::vector<int64_t> tokens(expected.size());
  const int64_t first[] = {0};
  dataset.read_windows(first, 257, tokens);
  CHECK(tokens == expected);
}

}  // namespace

TEST_CASE("a prepared uint16 file contains the text") { check_tokens("uint16.h5", 257); }

TEST_CASE("a prepared uint32 file contains the text") { check_tokens("uint32.h5", 100000); }
