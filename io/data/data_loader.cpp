#include "io/data/data_loader.hpp"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace mpzero::io {
namespace {

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

// Output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  if (size == 0) throw_failure("a permutation must have at least one element");
  half_bits_ = std::max<int>(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
  uint64_t state = mix(mix(seed + kGoldenGamma) ^ (epoch + kGoldenGamma));
  for (uint64_t& key : keys_) key = mix(state += kGoldenGamma);
}

uint64_t Permutation::operator()(uint64_t position) const {
  if (position >= size_) throw_failure("position {} is outside a permutation of {} elements", position, size_);
  do {
    position = encrypt(position);
  } while (position >= size_);
  return position;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    // The high bits of the product are the best mixed.
    const uint64_t next = left ^ (mix(right + key) >> (64 - half_bits_));
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

namespace {

void check(const LoaderOptions& options) {
  if (options.micro_batch_size < 1 || options.gradient_accumulation_steps < 1 || options.read_ahead < 1) {
    throw_failure("micro-batch {}, accumulation {} and read-ahead {} must be at least 1", options.micro_batch_size,
                  options.gradient_accumulation_steps, options.read_ahead);
  }
  if (options.data_parallel.rank < 0 || options.data_parallel.rank >= options.data_parallel.size) {
    throw_failure("rank {} is out of range for {} data-parallel ranks", options.data_parallel.rank,
                  options.data_parallel.size);
  }
}

struct Window {
  const TokenDataset* dataset;
  int64_t index;
};

// Appends a row of a file of pairs: the padded source, then the padded target.
void append_pair(const TokenDataset& dataset, int64_t index, std::span<const int64_t> row, int64_t decoder_start,
                 MicroBatch& batch) {
  const int64_t source = dataset.pairs()->source_length;
  const std::span<const int64_t> target(row.begin() + source, row.end() - 1);
  batch.source.insert(batch.source.end(), row.begin(), row.begin() + source);
  batch.tokens.push_back(decoder_start);
  batch.tokens.insert(batch.tokens.end(), target.begin(), target.end() - 1);
  batch.targets.insert(batch.targets.end(), target.begin(), target.end());
  std::vector<float> weights(static_cast<size_t>(dataset.seq_length()));
  dataset.read_loss_mask(std::span(&index, 1), weights);
  // The file stores the loss weight of each token as a target, so the weights are shifted by one token.
  batch.loss_mask.insert(batch.loss_mask.end(), weights.begin() + source - 1, weights.end() - 1);
}

// Keeps only this rank's part of each sequence.
template <typename T>
void keep_part(std::vector<T>& values, int64_t sequences, const SequenceParallel& parallel) {
  const auto part = std::ssize(values) / (sequences * parallel.size);
  std::vector<T> kept;
  kept.reserve(static_cast<size_t>(sequences * part));
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const auto begin = values.begin() + (sequence * parallel.size + parallel.rank) * part;
    kept.insert(kept.end(), begin, begin + part);
  }
  values = std::move(kept);
}

MicroBatch read_batch(std::span<const Window> windows, const LoaderOptions& options) {
  const auto any = [&](auto has) { return std::ranges::any_of(windows, has, &Window::dataset); };
  const bool masks_losses = any(std::mem_fn(&TokenDataset::has_loss_mask));
  const bool masks_documents = any(std::mem_fn(&TokenDataset::masks_documents));
  MicroBatch batch;
  batch.sequences = std::ssize(windows);
  for (const auto& [dataset, index] : windows) {
    const std::span<const int64_t> one(&index, 1);
    const int64_t seq_length = dataset->seq_length();
    std::vector<int64_t> tokens(static_cast<size_t>(seq_length + 1));
    dataset->read_windows(one, options.vocab_limit, tokens);
    if (options.decoder_start) {
      append_pair(*dataset, index, tokens, *options.decoder_start, batch);
      continue;
    }
    const auto begin = static_cast<int64_t>(batch.tokens.size());
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end() - 1);
    batch.targets.insert(batch.targets.end(), tokens.begin() + 1, tokens.end());
    if (masks_losses) batch.loss_mask.resize(batch.targets.size(), 1.0F);
    if (dataset->has_loss_mask()) {
      dataset->read_loss_mask(one, std::span(batch.loss_mask).last(static_cast<size_t>(seq_length)));
    }
    if (masks_documents) dataset->append_document_ends(index, begin, batch.document_ends);
  }
  if (options.sequence_parallel.size > 1) {
    keep_part(batch.tokens, batch.sequences, options.sequence_parallel);
    keep_part(batch.targets, batch.sequences, options.sequence_parallel);
    keep_part(batch.loss_mask, batch.sequences, options.sequence_parallel);
  }
  return batch;
}

bool any_has_loss_mask(std::span<const TokenDataset> datasets) {
  return std::ranges::any_of(datasets, &TokenDataset::has_loss_mask);
}

// The weight of a step is known only after all of its micro-batches have been read.
LoaderOptions with_room(LoaderOptions options, std::span<const TokenDataset> datasets) {
  if (any_has_loss_mask(datasets)) {
    options.read_ahead = std::max(options.read_ahead, options.gradient_accumulation_steps);
  }
  return options;
}

// A single dataset is a mixture with one source.
std::vector<MixtureSource> sources_of(const LoaderOptions& options, int64_t first_window) {
  if (!options.sources.empty()) return options.sources;
  return {{.weight = 1, .seed = options.seed, .windows_seen = first_window, .drawn = 0}};
}

int64_t all_windows(std::span<const TokenDataset> datasets) {
  int64_t sum = 0;
  for (const TokenDataset& dataset : datasets) sum += dataset.num_windows();
  return sum;
}

}  // namespace

double MicroBatch::weight() const {
  if (loss_mask.empty()) return 1;
  return std::accumulate(loss_mask.begin(), loss_mask.end(), 0.0) / static_cast<double>(loss_mask.size());
}

double MicroBatch::attention_share(int64_t seq_length) const {
  if (document_ends.empty()) return 1;
  double pairs = 0, begin = 0;
  for (const int32_t end : document_ends) {
    pairs += (end - begin) * (end - begin);
    begin = end;
  }
  return pairs / (begin * static_cast<double>(seq_length));
}

int64_t windows_per_step(const LoaderOptions& options) {
  return options.gradient_accumulation_steps * options.data_parallel.size * options.micro_batch_size;
}

int64_t steps_for_epochs(int64_t num_windows, const LoaderOptions& options, int64_t epochs) {
  const int64_t per_step = windows_per_step(options);
  return (num_windows * epochs + per_step - 1) / per_step;
}

// The reading thread owns the members from `datasets` to the separator. Both threads share the members below.
struct DataLoader::Impl {
  // The order of a dataset in one epoch.
  struct Order {
    int64_t epoch = -1;
    std::optional<Permutation> permutation;
  };

  Impl(std::vector<TokenDataset> tokens, LoaderOptions loader_options, int64_t first_step);
  Window next_window();
  MicroBatch read();
  void read_ahead(const std::stop_token& stop);

  std::vector<TokenDataset> datasets;
  const LoaderOptions options;
  const int64_t num_windows;
  int64_t position;                    // position of the next global micro-batch, over all epochs
  std::vector<MixtureSource> sources;  // sources at `position`
  std::vector<Order> orders;
  // ---
  std::mutex mutex;
  std::condition_variable_any changed;
  std::deque<MicroBatch> ready;
  std::exception_ptr failure;
  std::jthread thread;  // last member, so that it is joined first
};

DataLoader::Impl::Impl(std::vector<TokenDataset> tokens, LoaderOptions loader_options, int64_t first_step)
    : datasets(std::move(tokens)),
      options(with_room(std::move(loader_options), datasets)),
      num_windows(all_windows(datasets)),
      position(options.first_window.value_or(first_step * windows_per_step(options))),
      sources(sources_of(options, position)),
      orders(datasets.size()) {
  check(options);
  if (position < 0) throw_failure("a data loader cannot start at window {}", position);
  if (sources.size() != datasets.size()) {
    throw_failure("{} datasets were given for a mixture of {} sources", datasets.size(), sources.size());
  }
  thread = std::jthread([this](const std::stop_token& stop) { read_ahead(stop); });
}

Window DataLoader::Impl::next_window() {
  const size_t source = draw(sources);
  const TokenDataset& dataset = datasets[source];
  const int64_t at = sources[source].windows_seen - 1;
  const int64_t epoch = at / dataset.num_windows();
  const int64_t index = at % dataset.num_windows();
  if (!options.shuffle) return {&dataset, index};
  Order& order = orders[source];
  if (epoch != order.epoch) {
    const auto size = static_cast<uint64_t>(dataset.num_windows());
    order.permutation.emplace(size, sources[source].seed, static_cast<uint64_t>(epoch));
    order.epoch = epoch;
  }
  return {&dataset, static_cast<int64_t>((*order.permutation)(static_cast<uint64_t>(index)))};
}

MicroBatch DataLoader::Impl::read() {
  const int64_t begin = options.data_parallel.rank * options.micro_batch_size;
  const int64_t end = begin + options.micro_batch_size;
  const int64_t all = options.data_parallel.size * options.micro_batch_size;
  std::vector<Window> mine;
  for (int64_t b = 0; b < all; ++b) {
    // Draws the windows of all ranks because the next source depends on all previous draws.
    if (b >= begin && b < end) {
      mine.push_back(next_window());
    } else {
      draw(sources);
    }
  }
  MicroBatch batch = read_batch(mine, options);
  batch.first_window = position + begin;
  batch.epoch = batch.first_window / num_windows;
  position += all;
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

DataLoader::DataLoader(TokenDataset dataset, LoaderOptions options, int64_t first_step) {
  std::vector<TokenDataset> datasets;
  datasets.push_back(std::move(dataset));
  impl_ = std::make_unique<Impl>(std::move(datasets), std::move(options), first_step);
}
DataLoader::DataLoader(std::vector<TokenDataset> datasets, LoaderOptions options, int64_t first_step)
    : impl_(std::make_unique<Impl>(std::move(datasets), std::move(options), first_step)) {}
DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;

MicroBatch DataLoader::next() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return !impl_->ready.empty() || impl_->failure; });
  // First returns the batches that were read before the failure, so that the run stops at the step with the invalid
  // window.
  if (impl_->ready.empty()) std::rethrow_exception(impl_->failure);
  MicroBatch batch = std::move(impl_->ready.front());
  impl_->ready.pop_front();
  impl_->changed.notify_all();
  return batch;
}

const LoaderOptions& DataLoader::options() const { return impl_->options; }
std::string DataLoader::paths() const {
  std::string paths;
  for (const TokenDataset& dataset : impl_->datasets) paths += (paths.empty() ? "" : ", ") + dataset.path().string();
  return paths;
}
bool DataLoader::has_loss_mask() const { return any_has_loss_mask(impl_->datasets); }

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
  if (sequences < 0) throw_failure("the number of validation sequences must be at least 0, not {}", sequences);
}

int64_t ValidationSet::num_batches() const {
  const int64_t per_batch = options_.data_parallel.size * options_.micro_batch_size;
  return (num_windows_ + per_batch - 1) / per_batch;
}

ValidationBatch ValidationSet::read(int64_t batch) const {
  const int64_t begin = (batch * options_.data_parallel.size + options_.data_parallel.rank) * options_.micro_batch_size;
  ValidationBatch result;
  result.num_windows = std::clamp<int64_t>(num_windows_ - begin, 0, options_.micro_batch_size);
  std::vector<Window> windows;
  for (int64_t i = 0; i < result.num_windows; ++i) windows.push_back({&dataset_, begin + i});
  if (windows.empty()) windows.push_back({&dataset_, 0});
  result.tokens = read_batch(windows, options_);
  return result;
}

}  // namespace mpzero::io
