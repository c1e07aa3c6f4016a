#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/data/data_loader.hpp"
#include "io/data/mixture.hpp"
#include "tests/catch.hpp"
#include "tests/io/token_files.hpp"

using namespace mpzero::io;
using namespace mpzero::io::testing;

namespace {

constexpr int64_t kLength = 4;
constexpr int64_t kFar = 1 << 16;  // source s holds the tokens from s * kFar on
constexpr int64_t kLimit = 1 << 20;

std::vector<MixtureSource> sources_with(const std::vector<double>& weights) {
  std::vector<MixtureSource> sources;
  for (const double weight : weights) sources.push_back({.weight = weight, .seed = sources.size() + 7});
  return sources;
}

// Token files of `sizes` windows.
class Files {
 public:
  explicit Files(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      std::vector<uint32_t> tokens = counting_tokens(size * kLength + 1);
      for (uint32_t& token : tokens) token += static_cast<uint32_t>(paths_.size()) * kFar;
      paths_.push_back(folder_ / (std::to_string(paths_.size()) + ".h5"));
      write_token_file(paths_.back(), tokens, kLimit);
    }
  }
  std::vector<TokenDataset> open() const {
    std::vector<TokenDataset> datasets;
    for (const std::filesystem::path& path : paths_) datasets.emplace_back(path, kLength);
    return datasets;
  }

 private:
  TemporaryFolder folder_;
  std::vector<std::filesystem::path> paths_;
};

using Drawn = std::pair<int64_t, int64_t>;  // source, window

// The windows of the global batches after `sources`, which move on.
std::vector<Drawn> consumed(const Files& files, int ranks, int64_t micro_batch, int64_t steps,
                            std::vector<MixtureSource>& sources) {
  std::vector<DataLoader> loaders;
  for (int rank = 0; rank < ranks; ++rank) {
    LoaderOptions options;
    options.data_parallel = {.rank = rank, .size = ranks};
    options.micro_batch_size = micro_batch;
    options.vocab_limit = kLimit;
    options.sources = sources;
    loaders.emplace_back(files.open(), options, 0);
  }
  std::vector<Drawn> windows;
  for (int64_t step = 0; step < steps; ++step) {
    for (DataLoader& loader : loaders) {
      const MicroBatch batch = loader.next();
      for (size_t i = 0; i < batch.tokens.size(); i += kLength) {
        windows.emplace_back(batch.tokens[i] / kFar, batch.tokens[i] % kFar / kLength);
      }
    }
  }
  for (size_t i = 0; i < windows.size(); ++i) draw(sources);
  return windows;
}

std::vector<int64_t> windows_of_source(const std::vector<Drawn>& all, int64_t source) {
  std::vector<int64_t> windows;
  for (const auto& [of, window] : all) {
    if (of == source) windows.push_back(window);
  }
  return windows;
}

}  // namespace

TEST_CASE("weights 0.25 and 0.75 give 2 and 6 of each 8 windows") {
  std::vector<MixtureSource> sources = sources_with({0.25, 0.75});
  for (int64_t round = 1; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) draw(sources);
    CHECK(sources[0].drawn == 2 * round);
    CHECK(sources[1].drawn == 6 * round);
  }
}

TEST_CASE("each prefix of a mixture is within one window of its shares") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> weights(2 + random() % 9);
    double total = 0;
    // Shares of 1 in 1000 and less beside large ones are where greedy methods leave the quota.
    for (double& weight : weights)
      total += weight = std::pow(10.0, -3.0 * static_cast<double>(random()) / 4294967295.0);
    std::vector<MixtureSource> sources = sources_with(weights);
    for (int k = 1; k <= 3000; ++k) {
      draw(sources);
      for (const MixtureSource& source : sources) {
        REQUIRE(std::abs(static_cast<double>(source.drawn) - source.weight / total * k) < 1);
      }
    }
  }
}

TEST_CASE("with sizes as weights, each epoch of the mixture contains every window once") {
  const Files files({5, 1, 14});
  std::vector<MixtureSource> sources = sources_with({5, 1, 14});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<Drawn> windows = consumed(files, 2, 5, 2, sources);
    std::sort(windows.begin(), windows.end());
    CHECK(std::unique(windows.begin(), windows.end()) == windows.end());
    CHECK(windows.size() == 20);
  }
}

TEST_CASE("a mixture contains the same windows for any number of ranks, even after a resume") {
  const Files files({9, 20});
  std::vector<MixtureSource> alone = sources_with({0.3, 0.7}), split = alone;
  const std::vector<Drawn> whole = consumed(files, 1, 12, 6, alone);
  std::vector<Drawn> joined = consumed(files, 4, 3, 2, split);
  for (const auto& [ranks, micro_batch, steps] : {std::tuple(2, 3, 3), {3, 2, 5}}) {
    const std::vector<Drawn> part = consumed(files, ranks, micro_batch, steps, split);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  CHECK(joined == whole);
}

TEST_CASE("each source keeps its order: other sources and weights neither skip nor repeat its windows") {
  const Files two({9, 20}), three({9, 20, 6});
  std::vector<MixtureSource> sources = sources_with({0.3, 0.7});
  std::vector<Drawn> all = consumed(two, 1, 10, 2, sources);
  CHECK(windows_of_source(all, 0).size() == 6);
  sources = {{.weight = 5, .seed = sources[0].seed, .windows_seen = sources[0].windows_seen},
             {.weight = 3, .seed = sources[1].seed, .windows_seen = sources[1].windows_seen},
             {.weight = 2, .seed = 99}};
  const std::vector<Drawn> later = consumed(three, 1, 10, 1, sources);
  CHECK(windows_of_source(later, 0).size() == 5);
  CHECK(windows_of_source(later, 2).size() == 2);
  all.insert(all.end(), later.begin(), later.end());
  for (const auto& [source, size] : {std::pair<int64_t, uint64_t>(0, 9), {1, 20}}) {
    const std::vector<int64_t> windows = windows_of_source(all, source);
    for (uint64_t i = 0; i < windows.size(); ++i) {
      const Permutation order(size, static_cast<uint64_t>(source) + 7, i / size);
      CHECK(windows[i] == static_cast<int64_t>(order(i % size)));
    }
  }
}

TEST_CASE("in a mixture, windows without a loss mask have weight 1, and a window of plain text is one document") {
  const TemporaryFolder folder;
  write_token_file(folder / "text.h5", counting_tokens(9), kLimit, {0, 3, 9});
  write_packed_file(folder / "packed.h5", counting_tokens(9), kLimit, {0, 3, 4, 8, 9}, {0, 1, 1, 0, 0, 1, 1, 1, 0},
                    kLength);
  std::vector<TokenDataset> datasets;
  datasets.emplace_back(folder / "text.h5", kLength);
  datasets.emplace_back(folder / "packed.h5", kLength);
  LoaderOptions options;
  options.micro_batch_size = 2;
  options.shuffle = false;
  options.vocab_limit = kLimit;
  options.sources = sources_with({1, 1});
  DataLoader loader(std::move(datasets), options, 0);
  CHECK(loader.has_loss_mask());
  CHECK(loader.num_windows() == 4);
  const MicroBatch batch = loader.next();
  CHECK(batch.document_ends == std::vector<int32_t>{4, 7, 8});
  CHECK(batch.loss_mask == std::vector<float>{1, 1, 1, 1, 1, 1, 0, 0});
  CHECK_THROWS_AS(DataLoader(TokenDataset(folder / "text.h5", kLength), options, 0), mpzero::Failure);
}
