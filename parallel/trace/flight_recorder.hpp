#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mpzero::parallel {

enum class CollectiveState : uint8_t {
  kQueued,   // on a GPU, earlier work on the streams is not done yet
  kStarted,  // running on this rank, or waiting for other ranks or the network
  kCompleted
};

// Work that is queued on a device and whose state can be queried.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  // Returns the state of the work without blocking. Can be called from any thread. Throws the device's error if the
  // device has failed.
  virtual CollectiveState state() const = 0;
};

struct CollectiveRecord {
  int64_t sequence = 0;  // counts from 1 in each communicator; the same collective has the same number on every rank
  std::string operation;
  int64_t bytes = 0;  // size of this rank's input or output, whichever is larger
  CollectiveState state = CollectiveState::kQueued;
  double seconds = 0;  // time since the collective was queued
};

// Ranks of a communicator: `count` ranks, every `stride`-th rank starting at `first`.
struct RankGroup {
  int first = 0;
  int count = 0;  // 0: all ranks of the run
  int stride = 1;

  bool operator==(const RankGroup&) const = default;
};

// Last collectives of one communicator on this rank.
struct ChannelRecord {
  std::string name;
  RankGroup ranks;
  int64_t queued = 0;                  // sequence of the last queued collective; 0: none
  int64_t started = 0;                 // sequence of the last started collective
  int64_t completed = 0;               // sequence of the last completed collective
  std::vector<CollectiveRecord> last;  // oldest first
};

// Records the last collectives of each communicator in ring buffers, so that a hung rank can report the collective in
// which it hangs. The collectives of one communicator complete in order.
class FlightRecorder {
 public:
  // Determines whether collectives of a communicator count as training progress. kNothing is for the control plane,
  // which polls even if training is stuck.
  enum class Shows : uint8_t { kProgress, kNothing };

  // Collectives of one communicator. Only one thread may call begin(), complete() and queued_on_device().
  class Channel {
   public:
    Channel(FlightRecorder& owner, std::string name, Shows shows, const RankGroup& ranks);
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // Records the start of a collective and returns its sequence number. `operation` must outlive the recorder.
    int64_t begin(const char* operation, int64_t bytes);
    void complete(int64_t sequence);
    // Records that a collective has been queued on a device and completes later.
    void queued_on_device(int64_t sequence, std::shared_ptr<const DeviceWork> work);

   private:
    friend class FlightRecorder;
    struct Entry {
      int64_t sequence = 0;
      const char* operation = "";
      int64_t bytes = 0;
      std::chrono::steady_clock::time_point begun;
      std::shared_ptr<const DeviceWork> work;  // null if known to be completed
    };
    Entry& entry(int64_t sequence) { return ring_[static_cast<size_t>(sequence) % ring_.size()]; }
    const Entry& entry(int64_t sequence) const { return ring_[static_cast<size_t>(sequence) % ring_.size()]; }
    void poll();
    ChannelRecord record(size_t count) const;
    void event() const;

    FlightRecorder& owner_;
    std::string name_;
    Shows shows_;
    RankGroup ranks_;
    mutable std::mutex mutex_;
    std::vector<Entry> ring_;
    int64_t queued_ = 0;
    int64_t started_ = 0;
    int64_t completed_ = 0;
  };

  // Returns a new channel for a communicator. The channel lives as long as the recorder. All ranks must open their
  // channels in the same order.
  Channel& channel(const std::string& name, Shows shows = Shows::kProgress, const RankGroup& ranks = {});

  // Queries the state of all collectives that are queued on devices. Can be called from any thread. Throws a device's
  // error if the device has failed.
  void poll();
  // Returns every channel with its last `count` collectives, as of the last poll(). Can be called from any thread.
  std::vector<ChannelRecord> records(size_t count) const;
  // Returns a counter that increases whenever a collective of a channel with kProgress begins or is found to be
  // completed.
  int64_t events() const { return events_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;  // protects channels_
  std::deque<Channel> channels_;
  std::atomic<int64_t> events_{0};
};

}  // namespace mpzero::parallel
