#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/process_group.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "io/files/write_pace.hpp"

namespace mpzero::io {

// Limits the write rate of a checkpoint during training such that a save slows down steps only slightly. The cost of a
// written byte, in extra seconds of step time, is measured during saves and carried over to the next save.
//
// The first steps during a save have no limit: the first one takes longer in any case, because the save holds states,
// and the disk's speed must be measured.
class SaveThrottle {
 public:
  // Allowed average slowdown of steps during a save. The goal is 3%; single steps vary by about as much.
  static constexpr double kAllowedSlowdown = 0.02;

  // Reports the time of a step without a save.
  void step_alone(double seconds);
  // A save of `bytes` begins. The next one is due `steps` steps later (0: unknown).
  void begin(int64_t bytes, int64_t steps);
  // Reports the time of a step during the save and the bytes of the save `written` so far. Returns the rate in bytes
  // per second for the save, WritePace::kUnlimited if steps are not slowed down. The rate suffices to finish before the
  // next save is due, and is at least a fixed fraction of the disk's speed.
  double step_during_save(double seconds, int64_t written);

 private:
  double usual_seconds() const;
  double rate() const;
  void measure();

  std::deque<double> alone_;  // the last steps without a save
  // Cost of the saves so far: extra seconds, and bytes written in them. Older ones count less.
  double extra_seconds_ = 0;
  double bytes_ = 0;

  // The current save.
  int64_t total_ = 0;
  int64_t written_ = 0;
  int64_t steps_until_next_ = 0;
  int64_t steps_ = 0;
  double fastest_ = 0;          // bytes per second
  std::vector<double> recent_;  // steps since the last measurement
  int64_t recent_bytes_ = 0;
};

// A task on its own thread with low priority.
class BackgroundTask {
 public:
  // `cores`: the hardware threads that the task and its child threads are bound to; empty: not bound.
  explicit BackgroundTask(std::function<void(std::stop_token)> work, std::vector<int> cores = {});
  // Requests a stop and waits for the task's end.
  ~BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void request_stop() { thread_.request_stop(); }
  // After its end: the exception's message (empty: none) and the duration.
  const std::string& error() const { return error_; }
  double seconds() const { return seconds_; }

 private:
  std::string error_;
  double seconds_ = 0;
  std::atomic<bool> ended_{false};
  std::jthread thread_;
};

// A checkpoint that is written in the background. Threads of each rank write it, and one of rank 0 publishes it. Ranks
// exchange their states in poll(), so that only the caller's thread communicates.
//
//   kWriting ──> kPublishing ──> kSaved
//      └──> kGivingUp <─┘ ──> kAbandoned
class BackgroundSave {
 public:
  enum class State : uint8_t { kWriting, kPublishing, kGivingUp, kSaved, kAbandoned };

  // Collective: creates the folder; throws on all ranks if rank 0 cannot. All spans of `values` must stay valid until
  // `values.done` is called, or for this object's lifetime; both functions are called from another thread. `cores`: see
  // BackgroundTask.
  BackgroundSave(SaveJob job, ShardValues values, ProcessGroup& group, FileSystem& files = disk(),
                 std::vector<int> cores = {});
  // Abandons an unfinished save on this rank; not collective.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Checks the progress of all ranks and starts the next phase. Collective and quick; returns the same state on all
  // ranks.
  State poll();
  // Removes the rate limit and polls until the checkpoint is saved or abandoned. Collective.
  State wait();

  // Limits this rank's writes.
  WritePace& pace() { return pace_; }

  bool in_flight() const { return state_ != State::kSaved && state_ != State::kAbandoned; }
  const SaveJob& job() const { return job_; }
  // Why it was abandoned: one sentence, the same on all ranks.
  const std::string& error() const { return error_; }
  // Only on rank 0, once the checkpoint is saved.
  const Published& published() const { return published_; }
  // Write time of the slowest rank, once all have finished; excludes the time until the next poll().
  double writing_seconds() const { return writing_seconds_; }
  // Estimated write time of the slowest rank without a rate limit; see WritePace::without_limit().
  double unhindered_seconds() const { return unhindered_seconds_; }

 private:
  void give_up(std::string error);

  SaveJob job_;
  ShardValues values_;
  ProcessGroup& group_;
  FileSystem& files_;
  State state_ = State::kWriting;
  std::string shard_file_;
  std::vector<std::string> shard_files_;
  std::vector<Leftover> left_;
  Published published_;
  std::string error_;
  double writing_seconds_ = 0;
  double unhindered_seconds_ = 0;
  WritePace pace_;
  std::vector<int> cores_;
  // Declared last: destroyed (joined) before the objects that they use.
  std::unique_ptr<BackgroundTask> writing_;
  std::unique_ptr<BackgroundTask> finishing_;  // rank 0: publishes, or removes the files of an abandoned save
};

}  // namespace mpzero::io
