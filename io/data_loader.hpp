#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/token_dataset.hpp"

namespace mpzero::io {

struct LoaderOptions {
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  int rank = 0;
  int world_size = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t vocab_limit = 0;  // token ids must be smaller: the model's vocabulary
};

// [B, T] row-major each; targets are inputs shifted by one.
struct MicroBatch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
  int64_t epoch = 0;
};

// Step s (from 0), micro-batch a, rank r, sample b reads window ((s*gas + a)*ranks + r)*mb + b of the epoch's order, counted
// through the epochs; so a global batch holds the same windows whatever the number of ranks. A thread reads ahead.
class DataLoader {
 public:
  // Starts at optimizer step `first_step`.
  DataLoader(TokenDataset dataset, LoaderOptions options, int64_t first_step);
  ~DataLoader();

  // The next micro-batch. Rethrows what the reading thread met.
  MicroBatch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
