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
  kQueued,   // queued; on a GPU, earlier work on its streams is not done yet
  kStarted,  // this rank's part has begun and waits for the other ranks, or for the network
  kCompleted
};

// Work that was queued on a device.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  // Does not block. From any thread; throws the device's error if it has failed.
  virtual CollectiveState state() const = 0;
};

struct CollectiveRecord {
  int64_t sequence = 0;  // from 1, counted by each communicator: the same collective has the same number on every rank
  std::string operation;
  int64_t bytes = 0;  // of the larger of this rank's input and output
  CollectiveState state = CollectiveState::kQueued;
  double seconds = 0;  // since it was queued
};

// The ranks of a communicator: `count` of them, every `stride`-th from `first` on.
struct RankGroup {
  int first = 0;
  int count = 0;  // 0: all ranks of the run
  int stride = 1;

  bool is_all() const { return count == 0; }
  bool contains(int rank) const;
  bool operator==(const RankGroup&) const = default;
};

// The last collectives of one communicator on this rank.
struct ChannelRecord {
  std::string name;
  RankGroup ranks;
  int64_t queued = 0;                  // the sequence of the last one queued; 0: none
  int64_t started = 0;                 // of the last one that has started
  int64_t completed = 0;               // of the last one that has completed
  std::vector<CollectiveRecord> last;  // oldest first
};

// Records the last collectives of each communicator in ring buffers, so that a rank that hangs can report where.
// Collectives of one communicator complete in order.
class FlightRecorder {
 public:
  // Whether a communicator's activity shows training progress; that of a polling control plane does not.
  enum class Shows : uint8_t { kProgress, kNothing };

  // One communicator's collectives. Only one thread may call begin(), complete() and queued_on_device().
  class Channel {
   public:
    Channel(FlightRecorder& owner, std::string name, Shows shows, const RankGroup& ranks);
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // Records that a collective is started. `operation` must outlive the recorder. Returns its sequence number.
    int64_t begin(const char* operation, int64_t bytes);
    void complete(int64_t sequence);
    // Records that the collective has been queued on a device and completes later.
    void queued_on_device(int64_t sequence, std::shared_ptr<const DeviceWork> work);

   private:
    friend class FlightRecorder;
    struct Entry {
      int64_t sequence = 0;
      const char* operation = "";
      int64_t bytes = 0;
      std::chrono::steady_clock::time_point begun;
      std::shared_ptr<const DeviceWork> work;  // until it is known to have completed
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

  // Opens a communicator's channel, which lives as long as the recorder. All ranks open theirs in the same order.
  Channel& channel(const std::string& name, Shows shows = Shows::kProgress, const RankGroup& ranks = {});

  // Queries the progress of devices. From any thread; throws a device's error if it has failed.
  void poll();
  // Every channel with its last `count` collectives, as of the last poll(). From any thread.
  std::vector<ChannelRecord> records(size_t count) const;
  // Increases whenever a collective that shows progress begins or is found completed.
  int64_t events() const { return events_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;  // of the list
  std::deque<Channel> channels_;
  std::atomic<int64_t> events_{0};
};

}  // namespace mpzero::parallel
