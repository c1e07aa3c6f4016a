#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/data/data_loader.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using namespace mpzero::io;
using namespace mpzero::io::testing;

namespace {

constexpr int64_t kSeqLength = 8;
constexpr int64_t kVocabulary = 1 << 20;

// A data set with this number of windows, in which each token is its own position.
class Windows {
 public:
  explicit Windows(int64_t count) : count_(count) {
    write_token_file(path(), counting_tokens(count * kSeqLength + 1), kVocabulary);
  }
  std::filesystem::path path() const { return folder_ / "tokens.h5"; }
  TokenDataset open() const { return {path(), kSeqLength}; }
  int64_t count() const { return count_; }

 private:
  TemporaryFolder folder_;
  int64_t count_;
};

LoaderOptions options_of(int rank, int data_parallel_size, int64_t micro_batch, int64_t accumulation, bool shuffle) {
  LoaderOptions options;
  options.data_parallel = {.rank = rank, .size = data_parallel_size};
  options.micro_batch_size = micro_batch;
  options.gradient_accumulation_steps = accumulation;
  options.shuffle = shuffle;
  options.seed = 42;
  options.vocab_limit = kVocabulary;
  return options;
}

// The windows of a micro-batch, after checking that its inputs and targets match them.
std::vector<int64_t> windows_of(const MicroBatch& batch) {
  std::vector<int64_t> windows;
  REQUIRE(batch.tokens.size() == batch.targets.size());
  REQUIRE(batch.tokens.size() % kSeqLength == 0);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (i % kSeqLength == 0) windows.push_back(batch.tokens[i] / kSeqLength);
    REQUIRE(batch.tokens[i] == windows.back() * kSeqLength + static_cast<int64_t>(i % kSeqLength));
    REQUIRE(batch.targets[i] == batch.tokens[i] + 1);
  }
  return windows;
}

// The windows of `steps` global batches in the order [step][micro-batch][rank][sample].
std::vector<int64_t> consumed(const Windows& data, int data_parallel_size, int64_t micro_batch, int64_t accumulation,
                              bool shuffle, int64_t first_step, int64_t steps) {
  std::vector<DataLoader> loaders;
  for (int rank = 0; rank < data_parallel_size; ++rank) {
    loaders.emplace_back(data.open(), options_of(rank, data_parallel_size, micro_batch, accumulation, shuffle),
                         first_step);
  }
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < steps * accumulation; ++i) {
    for (DataLoader& loader : loaders) {
      const auto batch = windows_of(loader.next());
      windows.insert(windows.end(), batch.begin(), batch.end());
    }
  }
  return windows;
}

}  // namespace

TEST_CASE("sequence-parallel ranks read consecutive parts of their sequences") {
  const Windows data(6);
  DataLoader whole(data.open(), options_of(0, 1, 2, 1, /*shuffle=*/true), 0);
  std::vector<DataLoader> parts;
  for (int rank = 0; rank < 4; ++rank) {
    LoaderOptions options = options_of(0, 1, 2, 1, /*shuffle=*/true);
    options.sequence_parallel = {.rank = rank, .size = 4};
    parts.emplace_back(data.open(), options, 0);
  }
  for (int step = 0; step < 5; ++step) {
    const MicroBatch expected = whole.next();
    MicroBatch joined;
    std::vector<MicroBatch> read;
    for (DataLoader& part : parts) read.push_back(part.next());
    for (int64_t sequence = 0; sequence < 2; ++sequence) {
      for (const MicroBatch& part : read) {
        CHECK(part.sequences == 2);
        CHECK(part.first_window == expected.first_window);
        REQUIRE(part.tokens.size() == 2 * kSeqLength / 4);
        for (const auto& [all, own] : {std::pair(&joined.tokens, &part.tokens), {&joined.targets, &part.targets}}) {
          all->insert(all->end(), own->begin() + sequence * kSeqLength / 4,
                      own->begin() + (sequence + 1) * kSeqLength / 4);
        }
      }
    }
    CHECK(joined.tokens == expected.tokens);
    CHECK(joined.targets == expected.targets);
  }
}

TEST_CASE("without shuffling, windows are in file order in each epoch") {
  const Windows data(10);
  for (int data_parallel_size = 1; data_parallel_size <= 4; ++data_parallel_size) {
    const auto windows = consumed(data, data_parallel_size, 2, 3, false, 0, 4);
    REQUIRE(windows.size() == static_cast<size_t>(data_parallel_size) * 2 * 3 * 4);
    for (size_t p = 0; p < windows.size(); ++p) REQUIRE(windows[p] == static_cast<int64_t>(p % 10));
  }
}

TEST_CASE("every window is read once per epoch, disjoint over 1 to 4 ranks, shuffled or not") {
  const Windows data(48);
  for (const bool shuffle : {false, true}) {
    for (int data_parallel_size = 1; data_parallel_size <= 4; ++data_parallel_size) {
      const int64_t steps = 48 / (data_parallel_size * 2 * 2);
      const auto windows = consumed(data, data_parallel_size, 2, 2, shuffle, 0, 3 * steps);
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        INFO("ranks " << data_parallel_size << ", epoch " << epoch << ", shuffle " << shuffle);
        const std::set<int64_t> once(windows.begin() + epoch * 48, windows.begin() + (epoch + 1) * 48);
        CHECK(once.size() == 48);
      }
    }
  }
}

TEST_CASE("a global batch contains the same windows for any split over ranks, micro-batches and accumulation") {
  const Windows data(37);  // not a multiple of the batch: epochs end within a step
  const auto alone = consumed(data, 1, 12, 1, true, 0, 10);
  CHECK(consumed(data, 1, 1, 12, true, 0, 10) == alone);
  CHECK(consumed(data, 2, 3, 2, true, 0, 10) == alone);
  CHECK(consumed(data, 3, 2, 2, true, 0, 10) == alone);
  CHECK(consumed(data, 4, 3, 1, true, 0, 10) == alone);
}

TEST_CASE("each epoch has its own order, as given by Permutation") {
  const Windows data(16);
  const auto windows = consumed(data, 2, 4, 1, true, 0, 4);
  for (uint64_t p = 0; p < 32; ++p) {
    CHECK(windows[p] == static_cast<int64_t>(Permutation(16, 42, p / 16)(p % 16)));
  }
  CHECK(!std::equal(windows.begin(), windows.begin() + 16, windows.begin() + 16));
}

TEST_CASE("a loader that starts at step k returns the same batches as an uninterrupted loader") {
  const Windows data(23);
  const auto uninterrupted = consumed(data, 2, 2, 3, true, 0, 12);
  for (int64_t first_step = 0; first_step < 12; ++first_step) {
    INFO("from step " << first_step);
    const std::vector<int64_t> rest(uninterrupted.begin() + first_step * 12, uninterrupted.end());
    CHECK(consumed(data, 2, 2, 3, true, first_step, 12 - first_step) == rest);
  }
}

TEST_CASE("first_window continues where runs with a different batch size stopped") {
  const Windows data(23);
  const auto uninterrupted = consumed(data, 1, 1, 1, true, 0, 60);
  LoaderOptions options = options_of(0, 1, 5, 1, true);
  options.first_window = 17;
  DataLoader loader(data.open(), options, 999);
  CHECK(windows_of(loader.next()) == std::vector<int64_t>(uninterrupted.begin() + 17, uninterrupted.begin() + 22));
  CHECK(windows_of(loader.next()) == std::vector<int64_t>(uninterrupted.begin() + 22, uninterrupted.begin() + 27));
}

TEST_CASE("a micro-batch reports its epoch and first window, and epochs convert to steps") {
  const Windows data(10);
  DataLoader loader(data.open(), options_of(0, 1, 4, 1, true), 0);
  CHECK(loader.num_windows() == 10);
  int64_t first = 0;
  for (const int64_t epoch : {0, 0, 0, 1, 1, 2}) {
    const MicroBatch batch = loader.next();
    CHECK(batch.epoch == epoch);
    CHECK(batch.first_window == first);
    first += 4;
  }

  const LoaderOptions options = options_of(0, 2, 3, 4, true);
  CHECK(windows_per_step(options) == 24);
  CHECK(steps_for_epochs(24, options, 1) == 1);
  CHECK(steps_for_epochs(25, options, 1) == 2);
  CHECK(steps_for_epochs(25, options, 24) == 25);
}

TEST_CASE("an id outside the vocabulary permanently stops the loader at its batch") {
  const Windows data(6);
  LoaderOptions options = options_of(0, 1, 1, 1, false);
  options.vocab_limit = 2 * kSeqLength + 1;  // window 2 is the first with a larger id
  DataLoader loader(data.open(), options, 0);
  CHECK(windows_of(loader.next()) == std::vector<int64_t>{0});
  CHECK(windows_of(loader.next()) == std::vector<int64_t>{1});
  for (int i = 0; i < 2; ++i) {
    const std::string message = message_of<mpzero::UserError>([&] { loader.next(); });
    CHECK(lacks(message, {"tokens.h5", "id 17 at position 17"}) == "");
  }
}

TEST_CASE("a step's weight is known before its first micro-batch, for any read-ahead") {
  const Windows data(12);
  std::vector<float> mask;
  for (int64_t i = 0; i <= 12 * kSeqLength; ++i) mask.push_back(static_cast<float>(i % 5));
  write_masked_file(data.path(), counting_tokens(12 * kSeqLength + 1), kVocabulary, mask);
  LoaderOptions options = options_of(1, 2, 2, 3, false);
  options.read_ahead = 1;
  DataLoader loader(data.open(), options, 0);
  REQUIRE(loader.has_loss_mask());
  for (int step = 0; step < 3; ++step) {  // the last one begins a second epoch
    const double weight = loader.step_weight();
    double sum = 0;
    for (int a = 0; a < 3; ++a) {
      const MicroBatch batch = loader.next();
      REQUIRE(batch.loss_mask.size() == batch.targets.size());
      // Each token is its position.
      for (size_t i = 0; i < batch.targets.size(); ++i) {
        CHECK(batch.loss_mask[i] == static_cast<float>(batch.targets[i] % 5));
        sum += batch.loss_mask[i] / static_cast<double>(batch.targets.size());
      }
    }
    CHECK(weight == Approx(sum));
  }
}

TEST_CASE("without a loss mask, each micro-batch has weight 1") {
  const Windows data(6);
  DataLoader loader(data.open(), options_of(0, 2, 1, 3, false), 0);
  CHECK_FALSE(loader.has_loss_mask());
  CHECK(loader.step_weight() == 3);
  CHECK(loader.next().loss_mask.empty());
}

TEST_CASE("a loss mask with a different length or dtype, or negative or non-finite weights, is refused") {
  const auto error_of = [](const auto& mask) {
    const Windows data(2);
    write_masked_file(data.path(), counting_tokens(2 * kSeqLength + 1), kVocabulary, mask);
    return message_of<mpzero::UserError>([&] {
      DataLoader loader(data.open(), options_of(0, 1, 1, 1, false), 0);
      loader.next();
    });
  };
  std::vector<float> mask(2 * kSeqLength + 1, 1.0F);
  CHECK(error_of(mask).empty());
  CHECK(error_of(std::vector<uint8_t>(mask.size(), 1)).empty());
  CHECK(lacks(error_of(std::vector<int32_t>(mask.size(), 1)), {"tokens.h5", "loss_mask"}).empty());
  CHECK(lacks(error_of(std::vector<float>(mask.size() - 1, 1)), {"tokens.h5", "loss_mask"}).empty());
  for (const float wrong : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    mask[3] = wrong;
    CHECK(lacks(error_of(mask), {"tokens.h5", "position 3"}).empty());
  }
}

TEST_CASE("truncating a file stops its loader after the batches that were already read") {
  const Windows data(5000);
  DataLoader loader(data.open(), options_of(0, 1, 2, 1, false), 0);
  int64_t read = 0;
  for (; read < 10; ++read) CHECK(windows_of(loader.next()) == std::vector<int64_t>{2 * read, 2 * read + 1});
  std::filesystem::resize_file(data.path(), std::filesystem::file_size(data.path()) / 2);
  // The waiting batches were read before, so they are correct. After them every call throws.
  std::string message;
  for (; message.empty() && read < 100; ++read) {
    MicroBatch batch;
    message = message_of<mpzero::UserError>([&] { batch = loader.next(); });
    if (message.empty()) CHECK(windows_of(batch) == std::vector<int64_t>{2 * read, 2 * read + 1});
  }
  CHECK(lacks(message, {data.path().string(), "while it was being read", "start the run again"}) == "");
  CHECK(message_of<mpzero::UserError>([&] { loader.next(); }) == message);
}

TEST_CASE("truncating a file between two validation passes stops the second pass") {
  const Windows data(500);
  const ValidationSet set(data.open(), options_of(0, 1, 2, 1, false), 6);
  for (int64_t a = 0; a < set.num_batches(); ++a) CHECK(windows_of(set.read(a).tokens).size() == 2);
  std::filesystem::resize_file(data.path(), std::filesystem::file_size(data.path()) - 1);
  const std::string message = message_of<mpzero::UserError>([&] { set.read(0); });
  CHECK(lacks(message, {data.path().string(), "while it was being read"}) == "");
}

TEST_CASE("a loader can be destroyed at any time, with batches waiting or being read") {
  const Windows data(50);
  for (int taken = 0; taken < 20; ++taken) {
    DataLoader loader(data.open(), options_of(0, 1, 2, 1, true), 0);
    for (int i = 0; i < taken; ++i) loader.next();
  }
  SUCCEED();
}

TEST_CASE("invalid options are refused") {
  const Windows data(5);
  CHECK_THROWS_AS(DataLoader(data.open(), options_of(2, 2, 1, 1, true), 0), mpzero::Failure);
  CHECK_THROWS_AS(DataLoader(data.open(), options_of(0, 1, 0, 1, true), 0), mpzero::Failure);
  CHECK_THROWS_AS(DataLoader(data.open(), options_of(0, 1, 1, 1, true), -1), mpzero::Failure);
}

TEST_CASE("a validation pass counts each of the first N windows once, in file order, for any layout") {
  const Windows data(23);
  for (int data_parallel_size = 1; data_parallel_size <= 7; ++data_parallel_size) {
    for (const int64_t micro_batch : {1, 2, 3, 8}) {
      for (const int64_t sequences : {1, 5, 22, 23, 24, 1 << 30, 0}) {
        INFO("ranks " << data_parallel_size << ", micro-batch " << micro_batch << ", sequences " << sequences);
        const int64_t expected = sequences == 0 ? 23 : std::min<int64_t>(sequences, 23);
        const int64_t per_batch = data_parallel_size * micro_batch;
        std::vector<ValidationSet> ranks;
        for (int rank = 0; rank < data_parallel_size; ++rank) {
          ranks.emplace_back(data.open(), options_of(rank, data_parallel_size, micro_batch, 1, true), sequences);
          REQUIRE(ranks.back().num_windows() == expected);
          REQUIRE(ranks.back().num_batches() == (expected + per_batch - 1) / per_batch);
        }
        for (int pass = 0; pass < 2; ++pass) {
          std::vector<int64_t> counted;
          for (int64_t a = 0; a < ranks.front().num_batches(); ++a) {
            for (const ValidationSet& set : ranks) {
              const ValidationBatch batch = set.read(a);
              const std::vector<int64_t> windows = windows_of(batch.tokens);
              // A rank with no windows left still takes part, with one window that does not count.
              REQUIRE(static_cast<int64_t>(windows.size()) == std::max<int64_t>(batch.num_windows, 1));
              counted.insert(counted.end(), windows.begin(), windows.begin() + batch.num_windows);
            }
          }
          REQUIRE(counted.size() == static_cast<size_t>(expected));
          for (size_t i = 0; i < counted.size(); ++i) CHECK(counted[i] == static_cast<int64_t>(i));
        }
      }
    }
  }
  CHECK_THROWS_AS(ValidationSet(data.open(), options_of(0, 1, 1, 1, true), -1), mpzero::Failure);
}
