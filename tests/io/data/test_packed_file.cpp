#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/data/data_loader.hpp"
#include "io/data/token_dataset.hpp"
#include "io/data/token_identity.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using namespace mpzero::io;
using namespace mpzero::io::testing;

namespace {

constexpr int64_t kRow = 8;
constexpr int64_t kVocabulary = 1 << 20;

// Rows of 3 + 4 + 1 (padding), 8, and 5 + 3 tokens, then the last token.
const std::vector<uint64_t> kOffsets = {0, 3, 7, 8, 16, 21, 24, 25};

std::vector<uint8_t> some_mask(size_t size = 25) { return std::vector<uint8_t>(size, 1); }

void write_rows(const std::filesystem::path& path, const std::vector<uint64_t>& offsets = kOffsets,
                const std::vector<uint8_t>& mask = some_mask(), int64_t row = kRow) {
  write_packed_file(path, counting_tokens(static_cast<int64_t>(offsets.back())), kVocabulary, offsets, mask, row);
}

LoaderOptions options_of(int64_t micro_batch) {
  LoaderOptions options;
  options.micro_batch_size = micro_batch;
  options.shuffle = false;
  options.vocab_limit = kVocabulary;
  return options;
}

std::vector<int32_t> first_ends(TokenDataset dataset, int64_t micro_batch) {
  return DataLoader(std::move(dataset), options_of(micro_batch), 0).next().document_ends;
}

std::string opening_error(const std::filesystem::path& path, int64_t seq_length = kRow) {
  return message_of<mpzero::UserError>([&] { TokenDataset(path, seq_length); });
}

}  // namespace

TEST_CASE("a micro-batch of a packed file contains the ends of all documents and sequences") {
  const TemporaryFolder folder;
  write_rows(folder / "packed.h5");
  const TokenDataset dataset(folder / "packed.h5", kRow);
  CHECK(dataset.is_packed());
  CHECK(dataset.num_windows() == 3);
  DataLoader loader(TokenDataset(folder / "packed.h5", kRow), options_of(2), 0);
  CHECK(loader.next().document_ends == std::vector<int32_t>{3, 7, 8, 16});
  CHECK(loader.next().document_ends == std::vector<int32_t>{5, 8, 11, 15, 16});  // row 2, then row 0
  CHECK(loader.has_loss_mask());
  const ValidationSet validation(TokenDataset(folder / "packed.h5", kRow), options_of(3), 0);
  CHECK(validation.read(0).tokens.document_ends == std::vector<int32_t>{3, 7, 8, 16, 21, 24});
  CHECK(first_ends(TokenDataset(folder / "packed.h5", kRow, false), 3).empty());
}

TEST_CASE("a different loss mask or different documents are different data") {
  const TemporaryFolder folder;
  const auto identity = [&](const std::vector<uint64_t>& offsets, const std::vector<uint8_t>& mask) {
    write_rows(folder / "packed.h5", offsets, mask);
    return read_token_identity(folder / "packed.h5");
  };
  const TokenIdentity first = identity(kOffsets, some_mask());
  CHECK(same_tokens(identity(kOffsets, some_mask()), first) == true);
  std::vector<uint8_t> mask = some_mask();
  mask[5] = 0;
  CHECK(same_tokens(identity(kOffsets, mask), first) == false);
  CHECK(same_tokens(identity({0, 4, 7, 8, 16, 21, 24, 25}, some_mask()), first) == false);
}

TEST_CASE("more documents than tokens, and an end-of-turn id beyond the vocabulary, are refused") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "packed.h5";
  std::vector<uint64_t> offsets(30, 0);
  offsets.back() = 25;
  write_rows(path, offsets);
  CHECK(lacks(opening_error(path), {"packed.h5", "document_offsets", "30"}).empty());
  for (const int64_t id : {int64_t{-5}, kVocabulary}) {
    hdf5::File file = hdf5::File::create(path);
    add_tokens(file, counting_tokens(25), kVocabulary, {0, 25});
    file.set_attribute("end_of_turn_token_id", id);
    file.close();
    CHECK(lacks(opening_error(path), {"packed.h5", "end_of_turn_token_id", std::to_string(id)}).empty());
  }
}

TEST_CASE("the attention share is computed from the squared document lengths") {
  const TemporaryFolder folder;
  write_rows(folder / "packed.h5");
  DataLoader loader(TokenDataset(folder / "packed.h5", kRow), options_of(3), 0);
  CHECK(loader.next().attention_share(kRow) == Approx((9 + 16 + 1 + 64 + 25 + 9) / 192.0));
  DataLoader whole(TokenDataset(folder / "packed.h5", kRow, false), options_of(3), 0);
  CHECK(whole.next().attention_share(kRow) == 1);
}

TEST_CASE("documents of a text file are clipped to the window, and reported only on request") {
  const TemporaryFolder folder;
  // Windows [0, 8), [8, 16), [16, 24): document 2 covers 5 to 17, and document 3 is empty.
  write_token_file(folder / "text.h5", counting_tokens(30), kVocabulary, {0, 5, 17, 17, 30});
  CHECK(first_ends(TokenDataset(folder / "text.h5", kRow), 3).empty());
  CHECK(first_ends(TokenDataset(folder / "text.h5", kRow, true), 3) == std::vector<int32_t>{5, 8, 16, 17, 24});
  write_token_file(folder / "falls.h5", counting_tokens(30), kVocabulary, {0, 17, 5, 30});
  CHECK(opening_error(folder / "falls.h5").empty());
  const std::string error = message_of<mpzero::UserError>([&] { TokenDataset(folder / "falls.h5", kRow, true); });
  CHECK(lacks(error, {"falls.h5", "document_offsets", "17 to 5"}).empty());
}

TEST_CASE("a packed file is refused with a different seq_length, incomplete rows or without a mask") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "packed.h5";
  write_rows(path);
  CHECK(opening_error(path).empty());
  for (const int64_t other : {4, 16, 64}) CHECK(lacks(opening_error(path, other), {"--seq_length 8"}).empty());
  write_rows(path, {0, 3, 7, 9, 16, 21, 24, 25});
  CHECK(lacks(opening_error(path), {"packed.h5", "token 8"}).empty());
  write_rows(path, {0, 3, 7, 8, 16, 21, 25});
  CHECK(lacks(opening_error(path), {"packed.h5", "token 24"}).empty());
  write_rows(path, {0, 8, 16, 24}, some_mask(24));
  CHECK(lacks(opening_error(path), {"packed.h5", "(24)", "packed_sequence_length (8)"}).empty());
  write_rows(path, kOffsets, {});
  CHECK(lacks(opening_error(path), {"packed.h5", "/loss_mask"}).empty());
  write_rows(path, kOffsets, some_mask(), 0);
  CHECK(lacks(opening_error(path), {"packed_sequence_length 0"}).empty());
}
