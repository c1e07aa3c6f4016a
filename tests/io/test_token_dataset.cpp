#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/token_dataset.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using mpzero::Failure;
using mpzero::UserError;
using mpzero::io::TokenDataset;
using namespace mpzero::io::testing;
namespace hdf5 = mpzero::io::hdf5;

namespace {

std::string opening_error(const std::filesystem::path& path, int64_t seq_length = 4) {
  return message_of<UserError>([&] { TokenDataset(path, seq_length); });
}

std::vector<int64_t> window_of(const TokenDataset& dataset, int64_t window, int64_t vocab_limit) {
  std::vector<int64_t> tokens(static_cast<size_t>(dataset.seq_length() + 1));
  dataset.read_window(window, vocab_limit, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("Windows overlap by one token and fill the file as far as they are whole") {
  const TemporaryFolder folder;
  // 3 windows of 4 + 1 tokens need 13; the other two of 15 are left over.
  write_token_file(folder / "tokens.h5", counting_tokens(15), 100);
  const TokenDataset dataset(folder / "tokens.h5", 4);
  CHECK(dataset.num_tokens() == 15);
  CHECK(dataset.num_documents() == 1);
  CHECK(dataset.vocab_size() == 100);
  CHECK(dataset.eos_token_id() == 99);
  CHECK(dataset.tokenizer() == "counting");
  CHECK(dataset.source() == "a test");
  REQUIRE(dataset.num_windows() == 3);
  CHECK(window_of(dataset, 0, 100) == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(window_of(dataset, 2, 100) == std::vector<int64_t>{8, 9, 10, 11, 12});
  CHECK_THROWS_AS(window_of(dataset, 3, 100), Failure);
  CHECK_THROWS_AS(window_of(dataset, -1, 100), Failure);

  CHECK(TokenDataset(folder / "tokens.h5", 14).num_windows() == 1);
  CHECK(TokenDataset(folder / "tokens.h5", 7).num_windows() == 2);
}

TEST_CASE("uint16 and uint32 files read alike, up to their largest id") {
  const TemporaryFolder folder;
  write_token_file<uint16_t>(folder / "16.h5", {0, 40000, 65535}, 65536);
  write_token_file<uint32_t>(folder / "32.h5", {0, 40000, 4000000000}, 4000000001);
  CHECK(window_of(TokenDataset(folder / "16.h5", 2), 0, 65536) == std::vector<int64_t>{0, 40000, 65535});
  CHECK(window_of(TokenDataset(folder / "32.h5", 2), 0, 4000000001) == std::vector<int64_t>{0, 40000, 4000000000});
}

TEST_CASE("An id outside the model's vocabulary is refused with file, position, id and limit") {
  const TemporaryFolder folder;
  std::vector<uint16_t> tokens(17, 5);
  tokens[10] = 300;
  write_token_file(folder / "tokens.h5", tokens, 1000);
  // A tokenizer larger than the model's vocabulary is no mistake as long as the ids that occur fit.
  const TokenDataset dataset(folder / "tokens.h5", 4);
  CHECK_NOTHROW(window_of(dataset, 0, 6));
  CHECK_NOTHROW(window_of(dataset, 2, 301));
  const std::string message = message_of<UserError>([&] { window_of(dataset, 2, 300); });
  CHECK(lacks(message, {(folder / "tokens.h5").string()}) == "");
  CHECK(lacks(message, {"id 300 at position 10", "ends at 299", "--vocab_size"}) == "");
}

TEST_CASE("A file that is missing, empty or of another kind is refused in one sentence") {
  const TemporaryFolder folder;
  CHECK(lacks(opening_error(folder / "missing.h5"), {"missing.h5 does not exist", "prepare_data.py"}) == "");
  CHECK(lacks(opening_error(folder / "."), {"is a folder"}) == "");

  std::FILE* text = std::fopen((folder / "text.h5").c_str(), "w");
  CHECK(lacks(opening_error(folder / "text.h5"), {"text.h5 is empty"}) == "");
  std::fputs("This is no HDF5 file, however it is called.", text);
  std::fclose(text);
  CHECK(lacks(opening_error(folder / "text.h5"), {"text.h5 cannot be opened as an HDF5 file"}) == "");

  hdf5::File other = hdf5::File::create(folder / "other.h5");
  other.create_dataset<float>("weights", 3);
  other.close();
  CHECK(lacks(opening_error(folder / "other.h5"), {"other.h5 has no /tokens"}) == "");
}

TEST_CASE("A truncated file is refused, wherever it was cut") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  write_token_file(path, counting_tokens(4000), 5000);
  const auto size = std::filesystem::file_size(path);
  for (const auto cut : {size - 1, size - 100, size / 2, size / 10, uintmax_t{600}, uintmax_t{10}}) {
    const auto part = folder / "part.h5";
    std::filesystem::copy_file(path, part, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(part, cut);
    INFO("cut at " << cut << " of " << size);
    CHECK(lacks(opening_error(part), {"part.h5"}) == "");
  }
}

TEST_CASE("Offsets that do not span the tokens are refused") {
  const TemporaryFolder folder;
  write_token_file(folder / "short.h5", counting_tokens(20), 100, {0, 10, 25});
  CHECK(lacks(opening_error(folder / "short.h5"), {"incomplete", "0 to 25", "20 tokens"}) == "");
  write_token_file(folder / "late.h5", counting_tokens(20), 100, {5, 20});
  CHECK(lacks(opening_error(folder / "late.h5"), {"incomplete"}) == "");
}

TEST_CASE("Fewer tokens than one window are refused") {
  const TemporaryFolder folder;
  write_token_file(folder / "tokens.h5", counting_tokens(4), 100);
  CHECK(lacks(opening_error(folder / "tokens.h5", 4), {"holds 4 tokens", "the 5 of one window"}) == "");
  CHECK(opening_error(folder / "tokens.h5", 3).empty());
  CHECK(lacks(opening_error(folder / "tokens.h5", 0), {"--seq_length"}) == "");
  write_token_file<uint16_t>(folder / "empty.h5", {}, 100);
  CHECK(lacks(opening_error(folder / "empty.h5"), {"holds no tokens"}) == "");
}

TEST_CASE("Another format version or element type is refused") {
  const TemporaryFolder folder;
  hdf5::File file = hdf5::File::create(folder / "tokens.h5");
  file.create_dataset<int64_t>("tokens", 100);
  const uint64_t ends[] = {0, 100};
  file.create_dataset<uint64_t>("document_offsets", 2).write(0, std::span<const uint64_t>(ends));
  file.set_attribute("vocab_size", 10);
  file.set_attribute("eos_token_id", 9);
  file.set_attribute("tokenizer", "none");
  file.set_attribute("source", "none");
  SECTION("version") {
    file.set_attribute("format_version", 2);
    file.close();
    CHECK(lacks(opening_error(folder / "tokens.h5"), {"format version 2", "reads version 1"}) == "");
  }
  SECTION("type") {
    file.set_attribute("format_version", 1);
    file.close();
    CHECK(lacks(opening_error(folder / "tokens.h5"), {"not one-dimensional uint16 or uint32"}) == "");
  }
  SECTION("no version") {
    file.close();
    CHECK(lacks(opening_error(folder / "tokens.h5"), {"'format_version' is missing"}) == "");
  }
}
