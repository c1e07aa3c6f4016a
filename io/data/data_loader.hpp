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

// A pseudo-random order of 0 .. size - 1 that needs no table: a balanced Feistel network over the smallest even number
// of bits that holds `size`, walked along its cycle until the value is below `size` (Black and Rogaway, "Ciphers with
// Arbitrary Finite Domains", CT-RSA 2002). Each (seed, epoch) gives another order. The same pair gives the same order
// on every machine.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // The index at `position` of the order. Both are in [0, size). Takes fewer than four steps of the cycle on average.
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
  SequenceParallel sequence_parallel{};  // its size divides the sequence length
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t vocab_limit = 0;  // token ids must be smaller: the model's vocabulary size
  int64_t read_ahead = 4;   // maximum number of micro-batches that are ready
  // Windows that all ranks together have consumed so far (TrainingProgress::sequences_seen). Needed if the batch size
  // has changed since; otherwise `first_step` gives the same position.
  std::optional<int64_t> first_window;
  // For a mixture: one per dataset, with its state at first_window; empty: one dataset, in the order of `seed`.
  std::vector<MixtureSource> sources{};
  // Only for files of pairs: the id that the decoder reads before a target's first token.
  std::optional<int64_t> decoder_start = {};
};

// Number of windows that one optimizer step consumes on all ranks together.
int64_t windows_per_step(const LoaderOptions& options);
// The smallest number of steps that consume every window `epochs` times.
int64_t steps_for_epochs(int64_t num_windows, const LoaderOptions& options, int64_t epochs);

// [B, T] row-major each; targets are tokens shifted by one. With sequence parallelism tokens, targets and loss_mask are
// [B, T/P], this rank's part of each sequence.
struct MicroBatch {
  std::vector<int64_t> source;  // [B, S], for pairs: the encoder's input; T is then the sequence length minus S
  std::vector<int64_t> tokens;
  std::vector<int64_t> targets;
  std::vector<float> loss_mask;  // weights of the targets' losses; empty: all 1
  // The offset of each document's end in the B * T tokens, ascending; the last is B * T. Each sequence's end is
  // one of them. Tokens attend within their document. Empty: each sequence is one document. Always for whole sequences,
  // also with sequence parallelism.
  std::vector<int32_t> document_ends;
  int64_t sequences = 0;  // B
  int64_t epoch = 0;      // epoch of its first window, from 0
  // Training only: index of its first window among all that the run reads; the others follow it.
  int64_t first_window = 0;

  double weight() const;  // the mean of loss_mask
  // Token pairs within documents as a fraction of those in full sequences: the sum of squared document lengths, divided
  // by B * T^2.
  double attention_share(int64_t seq_length) const;
};

// Step s (from 0), micro-batch a, data-parallel rank r, sample b reads window ((s*gas + a)*ranks + r)*mb + b of the
// epoch's order, counted across epochs. So a global batch holds the same windows for any number of ranks. Without
// shuffle the order is that of the file; with shuffle each epoch has its own order. A thread reads ahead. The batches
// depend only on the start position.
//
// In a mixture, draw() selects the source of each window; each source has its own epochs and order. An epoch of the
// mixture has as many windows as all sources together: without weights (see TrainFile) every window once, otherwise
// some sources more often and others less.
class DataLoader {
 public:
  // Starts at optimizer step `first_step`.
  DataLoader(TokenDataset dataset, LoaderOptions options, int64_t first_step);
  // A mixture: as many datasets as options.sources.
  DataLoader(std::vector<TokenDataset> datasets, LoaderOptions options, int64_t first_step);
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;

  // Returns the next micro-batch. Rethrows an error of the reading thread, also at each later call.
  MicroBatch next();

  // The sum of the weights of the next gradient_accumulation_steps micro-batches; waits for them if the dataset has a
  // loss mask. Call it before the first next() of a step. Throws as next() does.
  double step_weight() const;
  bool has_loss_mask() const;
  const LoaderOptions& options() const;
  std::string paths() const;  // "a.h5, b.h5"

  int64_t num_windows() const;  // in one epoch

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// This rank's micro-batch a of a validation pass.
struct ValidationBatch {
  MicroBatch tokens;
  // Number of windows in `tokens` that count. 0 if this rank has none left: it still gets one window for the
  // collectives of the forward pass, but its loss is ignored.
  int64_t num_windows = 0;
};

// Number of windows that a validation pass reads from a dataset of `num_windows`; `sequences` 0: all.
int64_t validation_windows(int64_t sequences, int64_t num_windows);

// The first windows of a dataset in file order, the same for any number of ranks and any micro-batch size: micro-batch
// a, rank r, sample b reads window (a*ranks + r)*mb + b, up to the last. The mean of the losses over all ranks,
// weighted by num_windows, is the mean loss of these windows.
class ValidationSet {
 public:
  // `sequences`: see validation_windows. Uses micro_batch_size, data_parallel and vocab_limit of `options`.
  ValidationSet(TokenDataset dataset, const LoaderOptions& options, int64_t sequences);

  int64_t num_windows() const { return num_windows_; }  // used by a pass, on all ranks together
  int64_t num_batches() const;                          // run by every rank in a pass
  ValidationBatch read(int64_t batch) const;

 private:
  TokenDataset dataset_;
  LoaderOptions options_;
  int64_t num_windows_;
};

}  // namespace mpzero::io
