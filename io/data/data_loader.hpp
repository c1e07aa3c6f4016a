#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "io/data/token_dataset.hpp"

namespace mpzero::io {

struct LoaderOptions {
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  int rank = 0;
  int world_size = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t vocab_limit = 0;  // token ids must be smaller: the model's vocabulary
  int64_t read_ahead = 4;   // micro-batches that wait, at most
  // Windows that all ranks together consumed before (TrainingProgress::windows_seen). Needed where the batch size has
  // changed since; else `first_step` says the same.
  std::optional<int64_t> first_window;
};

// The windows that one optimizer step consumes on all ranks together.
int64_t windows_per_step(const LoaderOptions& options);
// The fewest steps that consume every window `epochs` times.
int64_t steps_for_epochs(int64_t num_windows, const LoaderOptions& options, int64_t epochs);

// [B, T] row-major each; targets are inputs shifted by one.
struct MicroBatch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
  int64_t epoch = 0;  // of its first window, from 0
};

// Step s (from 0), micro-batch a, rank r, sample b reads window ((s*gas + a)*ranks + r)*mb + b of the epoch's order,
// counted through the epochs; so a global batch holds the same windows whatever the number of ranks. Without shuffle
// the order is the file's, with it one of its own for each epoch. A thread reads ahead; where the loader starts decides
// what it yields, not what was read before.
class DataLoader {
 public:
  // Starts at optimizer step `first_step`.
  DataLoader(TokenDataset dataset, LoaderOptions options, int64_t first_step);
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;

  // The next micro-batch. Rethrows what the reading thread met, from then on at each call.
  MicroBatch next();

  int64_t num_windows() const;  // of one epoch

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// This rank's part of micro-batch a of a validation pass.
struct ValidationBatch {
  MicroBatch tokens;
  // How many windows of `tokens` count. 0 where this rank has none left: it gets one window all the same, so that it
  // can take part in the collectives of the forward pass, and its loss counts for nothing.
  int64_t num_windows = 0;
};

// The first windows of a data set in order, disjoint over the ranks: micro-batch a, rank r, sample b reads window
// (a*ranks + r)*mb + b, and none twice. Where the set is smaller than asked for, the last micro-batches are smaller or
// count for nothing. The mean over all ranks of the losses weighted with num_windows is over the same windows whatever
// the number of ranks, as long as batches * ranks * mb is the same or the set is smaller than that.
class ValidationSet {
 public:
  // `batches`: micro-batches a rank, at most. Uses micro_batch_size, rank, world_size and vocab_limit of `options`.
  ValidationSet(TokenDataset dataset, const LoaderOptions& options, int64_t batches);

  int64_t num_windows() const { return num_windows_; }              // that a pass uses, on all ranks together
  int64_t num_windows_asked() const { return num_windows_asked_; }  // batches * ranks * mb
  int64_t num_batches() const;                                      // that every rank runs in a pass
  ValidationBatch read(int64_t batch) const;

 private:
  TokenDataset dataset_;
  LoaderOptions options_;
  int64_t num_windows_asked_;
  int64_t num_windows_;
};

}  // namespace mpzero::io
