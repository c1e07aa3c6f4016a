#include "io/data/data_loader.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "io/data/shuffle.hpp"

namespace mpzero::io {
namespace {

void check(const LoaderOptions& options) {
  if (options.micro_batch_size < 1 || options.gradient_accumulation_steps < 1 || options.read_ahead < 1) {
    throw_failure("micro-batch {}, accumulation {} and read-ahead {} must be at least 1", options.micro_batch_size,
                  options.gradient_accumulation_steps, options.read_ahead);
  }
  if (options.data_parallel.rank < 0 || options.data_parallel.rank >= options.data_parallel.size) {
    throw_failure("rank {} is outside of {} data-parallel ranks", options.data_parallel.rank,
                  options.data_parallel.size);
  }
}

MicroBatch read_batch(const TokenDataset& dataset, std::span<const int64_t> windows, int64_t vocab_limit) {
  const int64_t seq_length = dataset.seq_length();
  const auto num_windows = static_cast<int64_t>(windows.size());
  std::vector<int64_t> tokens(static_cast<size_t>(num_windows * (seq_length + 1)));
  dataset.read_windows(windows, vocab_limit, tokens);
  MicroBatch batch;
  batch.tokens.reserve(static_cast<size_t>(num_windows * seq_length));
  batch.targets.reserve(static_cast<size_t>(num_windows * seq_length));
  for (auto begin = tokens.begin(); begin != tokens.end(); begin += seq_length + 1) {
    batch.tokens.insert(batch.tokens.end(), begin, begin + seq_length);
    batch.targets.insert(batch.targets.end(), begin + 1, begin + seq_length + 1);
  }
  if (dataset.has_loss_mask()) {
    batch.loss_mask.resize(batch.targets.size());
    dataset.read_loss_mask(windows, batch.loss_mask);
  }
  for (int64_t b = 0; dataset.masks_documents() && b < num_windows; ++b) {
    dataset.append_document_ends(windows[static_cast<size_t>(b)], b * seq_length, batch.document_ends);
  }
  return batch;
}

// A step's weight is known only once all of its micro-batches have been read.
LoaderOptions with_room(LoaderOptions options, const TokenDataset& dataset) {
  if (dataset.has_loss_mask()) {
    options.read_ahead = std::max(options.read_ahead, options.gradient_accumulation_steps);
  }
  return options;
}

}  // namespace

double MicroBatch::weight() const {
  if (loss_mask.empty()) return 1;
  return std::accumulate(loss_mask.begin(), loss_mask.end(), 0.0) / static_cast<double>(loss_mask.size());
}

int64_t windows_per_step(const LoaderOptions& options) {
  return options.gradient_accumulation_steps * options.data_parallel.size * options.micro_batch_size;
}

int64_t steps_for_epochs(int64_t num_windows, const LoaderOptions& options, int64_t epochs) {
  const int64_t per_step = windows_per_step(options);
  return (num_windows * epochs + per_step - 1) / per_step;
}

// The reading thread owns `dataset` and everything above the line. Both threads share what is below it.
struct DataLoader::Impl {
  Impl(TokenDataset tokens, LoaderOptions loader_options, int64_t first_step);
  int64_t window_at(int64_t position);
  MicroBatch read();
  void read_ahead(const std::stop_token& stop);

  TokenDataset dataset;
  const LoaderOptions options;
  const int64_t num_windows;
  int64_t position;  // of this rank's next micro-batch, in the order over all epochs
  int64_t order_epoch = -1;
  std::optional<Permutation> order;
  // ---
  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<MicroBatch> ready;
  std::exception_ptr failure;
  std::jthread thread;  // last member: it stops before anything it uses is destroyed
};

DataLoader::Impl::Impl(TokenDataset tokens, LoaderOptions loader_options, int64_t first_step)
    : dataset(std::move(tokens)), options(with_room(loader_options, dataset)), num_windows(dataset.num_windows()) {
  check(options);
  const int64_t first_window = options.first_window.value_or(first_step * windows_per_step(options));
  if (first_window < 0) throw_failure("a data loader cannot start at window {}", first_window);
  position = first_window + options.data_parallel.rank * options.micro_batch_size;
  thread = std::jthread([this](const std::stop_token& stop) { read_ahead(stop); });
}

int64_t DataLoader::Impl::window_at(int64_t at) {
  const int64_t epoch = at / num_windows;
  const int64_t index = at % num_windows;
  if (!options.shuffle) return index;
  if (!order || epoch != order_epoch) {
    order.emplace(static_cast<uint64_t>(num_windows), options.seed, static_cast<uint64_t>(epoch));
    order_epoch = epoch;
  }
  return static_cast<int64_t>((*order)(static_cast<uint64_t>(index)));
}

MicroBatch DataLoader::Impl::read() {
  std::vector<int64_t> windows;
  for (int64_t b = 0; b < options.micro_batch_size; ++b) windows.push_back(window_at(position + b));
  MicroBatch batch = read_batch(dataset, windows, options.vocab_limit);
  batch.epoch = position / num_windows;
  position += options.data_parallel.size * options.micro_batch_size;
  return batch;
}

void DataLoader::Impl::read_ahead(const std::stop_token& stop) {
  try {
    while (!stop.stop_requested()) {
      MicroBatch batch = read();
      std::unique_lock lock(mutex);
      const auto has_room = [this] { return static_cast<int64_t>(ready.size()) < options.read_ahead; };
      if (!changed.wait(lock, stop, has_room)) return;
      ready.push_back(std::move(batch));
      changed.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    changed.notify_all();
  }
}

DataLoader::DataLoader(TokenDataset dataset, LoaderOptions options, int64_t first_step)
    : impl_(std::make_unique<Impl>(std::move(dataset), options, first_step)) {}
DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;

MicroBatch DataLoader::next() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return !impl_->ready.empty() || impl_->failure; });
  // Batches that were read before the failure are still returned: the run stops at the step of the bad window.
  if (impl_->ready.empty()) std::rethrow_exception(impl_->failure);
  MicroBatch batch = std::move(impl_->ready.front());
  impl_->ready.pop_front();
  impl_->changed.notify_all();
  return batch;
}

const LoaderOptions& DataLoader::options() const { return impl_->options; }
const std::filesystem::path& DataLoader::path() const { return impl_->dataset.path(); }
bool DataLoader::has_loss_mask() const { return impl_->dataset.has_loss_mask(); }

double DataLoader::step_weight() const {
  const auto count = static_cast<size_t>(impl_->options.gradient_accumulation_steps);
  if (!has_loss_mask()) return static_cast<double>(count);
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->ready.size() >= count || impl_->failure; });
  if (impl_->ready.size() < count) std::rethrow_exception(impl_->failure);
  double sum = 0;
  for (size_t a = 0; a < count; ++a) sum += impl_->ready[a].weight();
  return sum;
}

int64_t DataLoader::num_windows() const { return impl_->num_windows; }

int64_t validation_windows(int64_t sequences, int64_t num_windows) {
  return sequences == 0 ? num_windows : std::min(sequences, num_windows);
}

ValidationSet::ValidationSet(TokenDataset dataset, const LoaderOptions& options, int64_t sequences)
    : dataset_(std::move(dataset)),
      options_(options),
      num_windows_(validation_windows(sequences, dataset_.num_windows())) {
  check(options_);
  if (sequences < 0) throw_failure("a validation pass of {} sequences was requested", sequences);
}

int64_t ValidationSet::num_batches() const {
  const int64_t per_batch = options_.data_parallel.size * options_.micro_batch_size;
  return (num_windows_ + per_batch - 1) / per_batch;
}

ValidationBatch ValidationSet::read(int64_t batch) const {
  const int64_t begin = (batch * options_.data_parallel.size + options_.data_parallel.rank) * options_.micro_batch_size;
  ValidationBatch result;
  result.num_windows = std::clamp<int64_t>(num_windows_ - begin, 0, options_.micro_batch_size);
  std::vector<int64_t> windows(static_cast<size_t>(result.num_windows));
  std::iota(windows.begin(), windows.end(), begin);
  if (windows.empty()) windows.push_back(0);
  result.tokens = read_batch(dataset_, windows, options_.vocab_limit);
  return result;
}

}  // namespace mpzero::io
