// Token files of source and target pairs.
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "io/data/data_loader.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using namespace mpzero::io;
using namespace mpzero::io::testing;

namespace {

constexpr int64_t kRow = 5, kSource = 3, kStart = 77;

// Rows of three tokens of a source and two of a target, of which the second row's last one is padding.
void write_rows(const std::filesystem::path& path, int64_t source_length = kSource) {
  write_packed_file(path, counting_tokens(11), 100, {0, 5, 10, 11}, {0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0}, kRow,
                    source_length);
}

}  // namespace

TEST_CASE("a micro-batch of pairs contains sources, decoder inputs, targets and their weights") {
  const TemporaryFolder folder;
  write_rows(folder / "pairs.h5");
  LoaderOptions options;
  options.micro_batch_size = 2;
  options.shuffle = false;
  options.vocab_limit = 100;
  options.decoder_start = kStart;
  const auto check = [](const MicroBatch& batch) {
    CHECK(batch.sequences == 2);
    CHECK(batch.source == std::vector<int64_t>{0, 1, 2, 5, 6, 7});
    CHECK(batch.tokens == std::vector<int64_t>{kStart, 3, kStart, 8});
    CHECK(batch.targets == std::vector<int64_t>{3, 4, 8, 9});
    CHECK(batch.loss_mask == std::vector<float>{1, 1, 1, 0});
    CHECK(batch.document_ends.empty());
  };
  DataLoader loader(TokenDataset(folder / "pairs.h5", kRow), options, 0);
  CHECK(loader.step_weight() == 0.75);
  check(loader.next());
  check(ValidationSet(TokenDataset(folder / "pairs.h5", kRow), options, 0).read(0).tokens);
}

TEST_CASE("a source that fills its row is refused") {
  const TemporaryFolder folder;
  write_rows(folder / "pairs.h5", kRow);
  const std::string error = message_of<mpzero::UserError>([&] { TokenDataset(folder / "pairs.h5", kRow); });
  CHECK(lacks(error, {"pairs.h5", "source_length 5"}).empty());
}
