#include "parallel/trace/flight_recorder.hpp"

#include <algorithm>
#include <utility>

namespace mpzero::parallel {
namespace {

// More collectives than a step of a large model queues before the first one completes.
constexpr size_t kRingEntries = 512;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

FlightRecorder::Channel::Channel(FlightRecorder& owner, std::string name, Shows shows, const RankGroup& ranks)
    : owner_(owner), name_(std::move(name)), shows_(shows), ranks_(ranks), ring_(kRingEntries) {}

void FlightRecorder::Channel::event() const {
  if (shows_ == Shows::kProgress) owner_.events_.fetch_add(1, std::memory_order_relaxed);
}

int64_t FlightRecorder::Channel::begin(const char* operation, int64_t bytes) {
  event();
  std::shared_ptr<const DeviceWork> overwritten;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  Entry& next = entry(++queued_);
  overwritten = std::move(next.work);
  next = {.sequence = queued_,
          .operation = operation,
          .bytes = bytes,
          .begun = std::chrono::steady_clock::now(),
          .work = nullptr};
  return queued_;
}

void FlightRecorder::Channel::complete(int64_t sequence) {
  event();
  const std::lock_guard lock(mutex_);
  started_ = std::max(started_, sequence);
  completed_ = std::max(completed_, sequence);
}

void FlightRecorder::Channel::queued_on_device(int64_t sequence, std::shared_ptr<const DeviceWork> work) {
  const std::lock_guard lock(mutex_);
  if (entry(sequence).sequence == sequence) entry(sequence).work = std::move(work);
}

void FlightRecorder::Channel::poll() {
  // Queries devices without the lock, because the training thread also acquires it.
  std::vector<std::pair<int64_t, std::shared_ptr<const DeviceWork>>> open;
  {
    const std::lock_guard lock(mutex_);
    const int64_t oldest = std::max(completed_ + 1, queued_ - static_cast<int64_t>(ring_.size()) + 1);
    for (int64_t sequence = oldest; sequence <= queued_; ++sequence) {
      if (entry(sequence).work) open.emplace_back(sequence, entry(sequence).work);
    }
  }
  // Collectives complete in order, so only a few queries are necessary.
  const auto first_open = std::partition_point(
      open.begin(), open.end(), [](const auto& one) { return one.second->state() == CollectiveState::kCompleted; });
  const bool next_has_started = first_open != open.end() && first_open->second->state() != CollectiveState::kQueued;
  const std::lock_guard lock(mutex_);
  if (first_open != open.begin()) {
    const int64_t completed = std::prev(first_open)->first;
    if (completed > completed_) event();
    completed_ = std::max(completed_, completed);
    for (auto one = open.begin(); one != first_open; ++one) {
      if (entry(one->first).sequence == one->first) entry(one->first).work.reset();
    }
  }
  started_ = std::max(started_, next_has_started ? first_open->first : completed_);
}

ChannelRecord FlightRecorder::Channel::record(size_t count) const {
  const std::lock_guard lock(mutex_);
  ChannelRecord record{
      .name = name_, .ranks = ranks_, .queued = queued_, .started = started_, .completed = completed_, .last = {}};
  const int64_t held = std::min<int64_t>(queued_, static_cast<int64_t>(ring_.size()));
  // Adds the last collectives, and the first open collective, which may be much older.
  int64_t first = queued_ - std::min<int64_t>(static_cast<int64_t>(count), held) + 1;
  const auto add = [&](int64_t sequence) {
    const Entry& one = entry(sequence);
    CollectiveState state = CollectiveState::kQueued;
    if (sequence <= completed_) {
      state = CollectiveState::kCompleted;
    } else if (sequence <= started_ || !one.work) {
      state = CollectiveState::kStarted;
    }
    record.last.push_back({.sequence = sequence,
                           .operation = one.operation,
                           .bytes = one.bytes,
                           .state = state,
                           .seconds = seconds_since(one.begun)});
  };
  const int64_t open = completed_ + 1;
  if (open < first && open > queued_ - held) {
    add(open);
    ++first;
  }
  for (int64_t sequence = first; sequence <= queued_; ++sequence) add(sequence);
  // A queued collective without device work has started.
  if (queued_ > started_ && !entry(queued_).work) record.started = queued_;
  return record;
}

FlightRecorder::Channel& FlightRecorder::channel(const std::string& name, Shows shows, const RankGroup& ranks) {
  const std::lock_guard lock(mutex_);
  return channels_.emplace_back(*this, name, shows, ranks);
}

void FlightRecorder::poll() {
  // Queries without the lock, because a device that does not respond must not delay records().
  std::vector<Channel*> channels;
  {
    const std::lock_guard lock(mutex_);
    for (Channel& channel : channels_) channels.push_back(&channel);
  }
  for (Channel* channel : channels) channel->poll();
}

std::vector<ChannelRecord> FlightRecorder::records(size_t count) const {
  const std::lock_guard lock(mutex_);
  std::vector<ChannelRecord> records;
  records.reserve(channels_.size());
  for (const Channel& channel : channels_) records.push_back(channel.record(count));
  return records;
}

}  // namespace mpzero::parallel
