#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/data/token_dataset.hpp"
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
  dataset.read_windows(std::span(&window, 1), vocab_limit, tokens);
  return tokens;
}

// The error of reading all windows. Empty if there is none.
std::string reading_error(const TokenDataset& dataset) {
  return message_of<UserError>([&] {
    for (int64_t window = 0; window < dataset.num_windows(); ++window) window_of(dataset, window, 1 << 20);
  });
}

// A token file of 40000 tokens, of which only the thousands in `written` were ever written: in chunks of a thousand or,
// if `chunked` is false, contiguous.
void write_unfinished_file(const std::filesystem::path& path, bool chunked, const std::vector<uint64_t>& written) {
  const uint64_t size[] = {40000}, chunk[] = {1000}, ends[] = {0, 40000};
  hdf5::File file = hdf5::File::create(path);
  {
    hdf5::Dataset data =
        chunked ? file.create_dataset<uint32_t>("tokens", size, chunk) : file.create_dataset<uint32_t>("tokens", size);
    const std::vector<uint32_t> tokens = counting_tokens(1000);
    for (const uint64_t thousand : written) data.write(1000 * thousand, std::span<const uint32_t>(tokens));
    file.create_dataset<uint64_t>("document_offsets", 2).write(0, std::span<const uint64_t>(ends));
  }
  file.set_attribute("format_version", int64_t{1});
  file.set_attribute("vocab_size", int64_t{1000});
  file.set_attribute("eos_token_id", int64_t{999});
  file.set_attribute("tokenizer", "counting");
  file.set_attribute("source", "a test");
  file.close();
}

}  // namespace

TEST_CASE("windows overlap by one token and cover the file up to the last full window") {
  const TemporaryFolder folder;
  // 3 windows of 4 + 1 tokens need 13. The other two of the 15 are left over.
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

TEST_CASE("uint16 and uint32 files are read in the same way, up to their largest id") {
  const TemporaryFolder folder;
  write_token_file<uint16_t>(folder / "16.h5", {0, 40000, 65535}, 65536);
  write_token_file<uint32_t>(folder / "32.h5", {0, 40000, 4000000000}, 4000000001);
  CHECK(window_of(TokenDataset(folder / "16.h5", 2), 0, 65536) == std::vector<int64_t>{0, 40000, 65535});
  CHECK(window_of(TokenDataset(folder / "32.h5", 2), 0, 4000000001) == std::vector<int64_t>{0, 40000, 4000000000});
}

TEST_CASE("an id outside the model's vocabulary is refused with file, position, id and limit") {
  const TemporaryFolder folder;
  std::vector<uint16_t> tokens(17, 5);
  tokens[10] = 300;
  write_token_file(folder / "tokens.h5", tokens, 1000);
  // A tokenizer larger than the model's vocabulary is accepted as long as all ids in the file fit.
  const TokenDataset dataset(folder / "tokens.h5", 4);
  CHECK_NOTHROW(window_of(dataset, 0, 6));
  CHECK_NOTHROW(window_of(dataset, 2, 301));
  const std::string message = message_of<UserError>([&] { window_of(dataset, 2, 300); });
  CHECK(lacks(message, {(folder / "tokens.h5").string()}) == "");
  CHECK(lacks(message, {"id 300 at position 10", "is 299", "--vocab_size"}) == "");
}

TEST_CASE("a file that is missing, empty or of another kind is refused in one sentence") {
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

TEST_CASE("a truncated file is refused, wherever it was cut") {
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

TEST_CASE("tokens that the file declares but that were never written are refused, not read as zeros") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  const std::vector<std::string> refusal = {"tokens.h5", "/tokens", "element 39999 was never written",
                                            "prepare_data.py"};
  write_unfinished_file(path, /*chunked=*/true, {0, 1, 2});
  CHECK(lacks(opening_error(path), refusal) == "");
  write_unfinished_file(path, /*chunked=*/true, {});
  CHECK(lacks(opening_error(path), refusal) == "");
  write_unfinished_file(path, /*chunked=*/false, {});
  CHECK(lacks(opening_error(path), refusal) == "");

  write_unfinished_file(path, /*chunked=*/true, {0, 1, 2, 39});
  const TokenDataset dataset(path, 500);
  for (const int64_t window : {0, 4, 78}) CHECK_NOTHROW(window_of(dataset, window, 1000));
  const std::string message = message_of<UserError>([&] { window_of(dataset, 5, 1000); });
  CHECK(lacks(message, {"tokens.h5", "/tokens", "element 3000 was never written", "prepare_data.py"}) == "");
}

TEST_CASE("tokens with checksums are read as they were written, for any windows") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  const std::vector<uint32_t> tokens = counting_tokens(1000);
  write_checked_file(path, tokens, tokens);
  for (const int64_t seq_length : {1, 63, 64, 200, 999}) {
    INFO(seq_length);
    const TokenDataset dataset(path, seq_length);
    CHECK(dataset.has_checksums());
    for (int64_t window = dataset.num_windows() - 1; window >= 0; --window) {
      std::vector<int64_t> expected(static_cast<size_t>(seq_length + 1));
      std::iota(expected.begin(), expected.end(), window * seq_length);
      REQUIRE(window_of(dataset, window, 1000) == expected);
    }
  }
}

TEST_CASE("tokens that differ from the written tokens are reported and refused") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  const std::vector<uint16_t> written = [] {
    const std::vector<uint32_t> tokens = counting_tokens(1300);
    return std::vector<uint16_t>(tokens.begin(), tokens.end());
  }();
  std::vector<uint16_t> tokens = written;
  std::string range = "tokens 1,152 to 1,215 ";
  SECTION("one bit") { tokens[1200] ^= 1; }
  SECTION("zeros, whose fletcher32 is zero, too") { std::fill_n(tokens.begin() + 1152, 64, 0); }
  SECTION("all bits of a word, which fletcher32 treats like none") {
    range = "tokens 0 to 63 ";
    tokens[0] = 0xffff;
  }
  SECTION("a block from another place") { std::copy_n(written.begin(), 64, tokens.begin() + 1152); }
  SECTION("the last block, which is shorter") {
    range = "tokens 1,280 to 1,299 ";
    tokens[1299] ^= 1 << 15;
  }
  write_checked_file(path, tokens, written);
  const std::string message = message_of<UserError>([&] {
    const TokenDataset dataset(path, 10);
    for (int64_t window = 0; window < dataset.num_windows(); ++window) window_of(dataset, window, 1 << 20);
  });
  CHECK(lacks(message, {path.string(), "is damaged", range, "prepare", "app/prepare_data.py"}) == "");
}

TEST_CASE("checksums that do not match the tokens' layout are refused") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  const std::vector<uint32_t> tokens = counting_tokens(1000);
  write_checked_file(path, tokens, counting_tokens(900));
  CHECK(lacks(opening_error(path), {"tokens_xxh3", path.string(), "15 checksums", "16;"}) == "");
  hdf5::File file = hdf5::File::create(path);
  add_tokens(file, tokens, 1000, {0, 1000});
  file.create_dataset<uint64_t>("tokens_xxh3", 1).set_attribute("block_size", uint64_t{0});
  file.close();
  CHECK(lacks(opening_error(path), {"tokens_xxh3", path.string(), "block_size"}) == "");
}

TEST_CASE("a file that cannot be opened because of a system error is not reported as damaged") {
  const TemporaryFolder folder;
  write_token_file(folder / "tokens.h5", counting_tokens(100), 100);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::string message = opening_error(folder / "tokens.h5");
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(lacks(message, {"cannot open", "tokens.h5", "Too many open files", "ulimit -n"}) == "");
  CHECK(lacks(message, {"prepare_data.py"}) != "");
}

TEST_CASE("a header that declares more tokens than the file contains is refused before any read") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  write_unfinished_file(path, /*chunked=*/false, {0});
  REQUIRE(opening_error(path) == "");
  // The number of tokens is in the header as size and maximum size, and at the end of /document_offsets.
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const uint64_t length = 40000, claimed = 50000000;
  const std::string word(reinterpret_cast<const char*>(&length), sizeof length);
  int found = 0;
  for (size_t at = 0; (at = bytes.find(word, at)) != std::string::npos; at += word.size(), ++found) {
    std::memcpy(bytes.data() + at, &claimed, sizeof claimed);
  }
  REQUIRE(found == 3);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(lacks(opening_error(path), {"cannot read /tokens", path.string(), "prepare_data.py"}) == "");
}

TEST_CASE("truncating a file during a read is detected, wherever it is cut") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  write_token_file(path, counting_tokens(40000), 40000);
  const auto size = std::filesystem::file_size(path);
  for (const auto cut : {size - 1, size / 2, uintmax_t{600}, uintmax_t{0}}) {
    INFO("cut at " << cut << " of " << size);
    const auto part = folder / ("part-" + std::to_string(cut) + ".h5");
    std::filesystem::copy_file(path, part);
    const TokenDataset dataset(part, 4);
    CHECK(window_of(dataset, 0, 40000) == std::vector<int64_t>{0, 1, 2, 3, 4});
    std::filesystem::resize_file(part, cut);
    const std::string bytes = "from " + std::to_string(size) + " to " + std::to_string(cut) + " bytes";
    CHECK(lacks(reading_error(dataset), {part.string(), bytes, "while", "start the run again"}) == "");
    // The error persists.
    CHECK(lacks(reading_error(dataset), {part.string(), bytes}) == "");
  }
}

TEST_CASE("overwriting or replacing a file during a read is detected") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5", other = folder / "other.h5";
  write_token_file(path, counting_tokens(4000), 5000);
  // Some file systems store times in full seconds.
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::minutes(1));
  const TokenDataset dataset(path, 4);
  REQUIRE(reading_error(dataset) == "");
  SECTION("in place, by the same number of bytes") {
    write_token_file(other, std::vector<uint32_t>(4000, 7), 5000);
    REQUIRE(std::filesystem::file_size(other) == std::filesystem::file_size(path));
    std::filesystem::copy_file(other, path, std::filesystem::copy_options::overwrite_existing);
    CHECK(lacks(reading_error(dataset), {path.string(), "overwritten", "start the run again"}) == "");
  }
  SECTION("in place, by a file of another kind") {
    std::ofstream(path) << "no tokens";
    CHECK(lacks(reading_error(dataset), {path.string(), "to 9 bytes", "start the run again"}) == "");
  }
  SECTION("by renaming another file to its name") {
    write_token_file(other, std::vector<uint32_t>(4000, 7), 5000);
    std::filesystem::rename(other, path);
    CHECK(lacks(reading_error(dataset), {path.string(), "replaced", "start the run again"}) == "");
  }
  SECTION("by renaming another file to its name, if it has a second one") {
    write_token_file(other, std::vector<uint32_t>(4000, 7), 5000);
    std::filesystem::create_hard_link(path, folder / "kept.h5");
    REQUIRE(reading_error(dataset) == "");
    std::filesystem::rename(other, path);
    CHECK(lacks(reading_error(dataset), {path.string(), "replaced", "start the run again"}) == "");
  }
}

TEST_CASE("changes that keep the tokens do not stop the reader") {
  const TemporaryFolder folder;
  const auto path = folder / "tokens.h5";
  write_token_file(path, counting_tokens(4000), 5000);
  const TokenDataset dataset(path, 4);
  SECTION("another modification time, which keeps a file from being purged") {
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::hours(1));
    CHECK(reading_error(dataset) == "");
    write_token_file(folder / "other.h5", std::vector<uint32_t>(4000, 7), 5000);
    std::filesystem::copy_file(folder / "other.h5", path, std::filesystem::copy_options::overwrite_existing);
    CHECK(lacks(reading_error(dataset), {"overwritten"}) == "");
  }
  SECTION("another name") {
    std::filesystem::rename(path, folder / "moved.h5");
    CHECK(reading_error(dataset) == "");
  }
  SECTION("removing the name: the open file stays readable") {
    std::filesystem::remove(path);
    CHECK(reading_error(dataset) == "");
    write_token_file(path, counting_tokens(3000), 5000);
    CHECK(lacks(reading_error(dataset), {path.string(), "replaced"}) == "");
  }
}

TEST_CASE("offsets that do not span the tokens are refused") {
  const TemporaryFolder folder;
  write_token_file(folder / "short.h5", counting_tokens(20), 100, {0, 10, 25});
  CHECK(lacks(opening_error(folder / "short.h5"), {"incomplete", "0 to 25", "20 tokens"}) == "");
  write_token_file(folder / "late.h5", counting_tokens(20), 100, {5, 20});
  CHECK(lacks(opening_error(folder / "late.h5"), {"incomplete"}) == "");
}

TEST_CASE("fewer tokens than one window are refused") {
  const TemporaryFolder folder;
  write_token_file(folder / "tokens.h5", counting_tokens(4), 100);
  CHECK(lacks(opening_error(folder / "tokens.h5", 4), {"has 4 tokens", "needs 5 (", "reduce --seq_length"}) == "");
  CHECK(lacks(opening_error(folder / "tokens.h5", 4), {"prepare_data.py"}) != "");
  CHECK(opening_error(folder / "tokens.h5", 3).empty());
  CHECK(lacks(opening_error(folder / "tokens.h5", 0), {"--seq_length"}) == "");
  write_token_file<uint16_t>(folder / "empty.h5", {}, 100);
  CHECK(lacks(opening_error(folder / "empty.h5"), {"has no tokens"}) == "");
}

TEST_CASE("a different format version or element type is refused") {
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
    file.set_attribute("format_version", 4);
    file.close();
    CHECK(lacks(opening_error(folder / "tokens.h5"), {"format version 4", "reads 1 to 3"}) == "");
  }
  SECTION("type") {
    file.set_attribute("format_version", 1);
    file.close();
    CHECK(lacks(opening_error(folder / "tokens.h5"), {"not a one-dimensional uint16 or uint32"}) == "");
  }
  SECTION("no version") {
    file.close();
    CHECK(lacks(opening_error(folder / "tokens.h5"), {"'format_version' is missing"}) == "");
  }
}
