#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process_group.hpp"
#include "io/data/mixture.hpp"
#include "io/data/token_dataset.hpp"

namespace mpzero::io {

// A pseudo-random permutation of 0 to size - 1 without a table: a balanced Feistel network over the smallest even
// number of bits that can represent `size`, with cycle walking (Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", CT-RSA 2002). The permutation depends only on (size, seed, epoch) and is identical on every machine.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // Returns the index at `position`, both in [0, size).
  uint64_t operator()(uint64_t position) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t encrypt(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

struct LoaderOptions {
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  DataParallel data_parallel;
  SequenceParallel sequence_parallel{};  // the size must divide the sequence length
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t vocab_limit = 0;  // the model's vocabulary size; larger token ids are rejected
  int64_t read_ahead = 4;   // maximum number of prefetched micro-batches
  // Number of windows consumed by all ranks so far (TrainingProgress::sequences_seen); required if the batch size has
  // changed. If unset, the position follows from `first_step`.
  std::optional<int64_t> first_window;
  // Sources of a mixture, one per dataset, with their state at first_window; empty for a single dataset.
  std::vector<MixtureSource> sources{};
  // Decoder start token id, used only for files of source-target pairs.
  std::optional<int64_t> decoder_start = {};
};

// Returns the number of windows that all ranks consume in one optimizer step.
int64_t windows_per_step(const LoaderOptions& options);
// Returns the smallest number of steps that consume every window `epochs` times.
int64_t steps_for_epochs(int64_t num_windows, const LoaderOptions& options, int64_t epochs);

// One micro-batch. All tensors are row-major with shape [B, T]. Targets are the tokens shifted by one. With sequence
// parallelism over P ranks, tokens, targets and loss_mask are this rank's part [B, T/P].
struct MicroBatch {
  std::vector<int64_t> source;  // [B, S], encoder input of pairs; T is then the sequence length minus S
  std::vector<int64_t> tokens;
  std::vector<int64_t> targets;
  std::vector<float> loss_mask;  // loss weight per target; empty if all are 1
  // End offsets of the documents in the B * T tokens, ascending, including the end of each sequence. Tokens attend only
  // within their document. Sequence parallelism does not split document_ends. The vector is empty if each sequence is
  // one document.
  std::vector<int32_t> document_ends;
  int64_t sequences = 0;  // B
  int64_t epoch = 0;      // epoch of the first window, from 0
  // Index of the first window, counted over the whole run. The windows of a micro-batch are consecutive. first_window
  // is set only in training.
  int64_t first_window = 0;

  double weight() const;  // the mean of loss_mask
  // Returns the fraction of attended token pairs: the sum of squared document lengths, divided by B * T^2.
  double attention_share(int64_t seq_length) const;
};

// In step s (from 0) and micro-batch a, sample b of data-parallel rank r is window ((s*gas + a)*ranks + r)*mb + b of
// the epoch's order, counted across epochs. A global batch therefore contains the same windows on any number of ranks.
// Without shuffling, windows are in file order. With shuffling, each epoch has a different order. A thread prefetches
// batches. The batches depend only on the start position.
//
// In a mixture, draw() selects the source of each window. Each source has separate epochs and a separate order. An
// epoch of the mixture has as many windows as all sources combined. Without weights (see TrainFile), an epoch contains
// every window once. With weights, an epoch repeats some windows and omits others.
class DataLoader {
 public:
  // Loads a single dataset, starting at optimizer step `first_step`.
  DataLoader(TokenDataset dataset, LoaderOptions options, int64_t first_step);
  // Loads a mixture. `datasets` and options.sources must have the same length.
  DataLoader(std::vector<TokenDataset> datasets, LoaderOptions options, int64_t first_step);
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;

  // Returns the next micro-batch. Rethrows errors of the reading thread on this and all later calls.
  MicroBatch next();

  // Returns the sum of the weights of the next gradient_accumulation_steps micro-batches. Waits for these micro-batches
  // if the dataset has a loss mask. Must be called before the first next() of a step.
  double step_weight() const;
  bool has_loss_mask() const;
  const LoaderOptions& options() const;
  std::string paths() const;  // "a.h5, b.h5"

  int64_t num_windows() const;  // windows per epoch

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One micro-batch of this rank in a validation pass.
struct ValidationBatch {
  MicroBatch tokens;
  // Number of windows in `tokens` that count toward the loss. If 0, `tokens` is a placeholder for the collectives of
  // the forward pass, and the caller must ignore its loss.
  int64_t num_windows = 0;
};

// Returns the number of windows in a validation pass: min(sequences, num_windows), or num_windows if `sequences` is 0.
int64_t validation_windows(int64_t sequences, int64_t num_windows);

// The first windows of a dataset in file order, independent of the number of ranks and the micro-batch size. In
// micro-batch a, sample b of rank r is window (a*ranks + r)*mb + b. The validation loss is the mean of the losses over
// all ranks, weighted by num_windows.
class ValidationSet {
 public:
  // See validation_windows() for `sequences`. Uses only micro_batch_size, data_parallel and vocab_limit of `options`.
  ValidationSet(TokenDataset dataset, const LoaderOptions& options, int64_t sequences);

  int64_t num_windows() const { return num_windows_; }  // per pass, over all ranks
  int64_t num_batches() const;                          // per rank, per pass
  ValidationBatch read(int64_t batch) const;

 private:
  TokenDataset dataset_;
  LoaderOptions options_;
  int64_t num_windows_;
};

}  // namespace mpzero::io
