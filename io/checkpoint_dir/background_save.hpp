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

// Throttles a background save so that training steps slow down only slightly. Measures the extra step time per written
// byte, and reuses the measurement for later saves.
//
// A save is not throttled during its first steps, while the disk's speed is measured.
class SaveThrottle {
 public:
  // Allowed average slowdown of steps during a save. The limit is lower than the target of 3% because step times vary
  // by a similar amount even without a save.
  static constexpr double kAllowedSlowdown = 0.02;

  // Records the time of a step without a save.
  void step_alone(double seconds);
  // Starts a save of `bytes`. The next save is due `steps` steps later, or at an unknown time if `steps` is 0.
  void begin(int64_t bytes, int64_t steps);
  // Records the time of a step during the save and the number of bytes `written` so far. Returns the new rate in bytes
  // per second, at which the save finishes before the next save is due, or WritePace::kUnlimited if the save does not
  // slow down steps. The rate never falls below a fixed fraction of the disk's speed.
  double step_during_save(double seconds, int64_t written);

 private:
  double usual_seconds() const;
  double rate() const;
  void measure();

  std::deque<double> alone_;  // times of the last steps without a save, in seconds
  // Exponentially decayed totals over all saves: the step time added by saving, in seconds, and the number of bytes
  // written.
  double extra_seconds_ = 0;
  double bytes_ = 0;

  // State of the current save.
  int64_t total_ = 0;
  int64_t written_ = 0;
  int64_t steps_until_next_ = 0;
  int64_t steps_ = 0;
  double fastest_ = 0;          // bytes per second
  std::vector<double> recent_;  // step times since the last measurement, in seconds
  int64_t recent_bytes_ = 0;
};

// A task on a separate low-priority thread.
class BackgroundTask {
 public:
  // Starts `work` on a thread. Binds this thread and its child threads to the hardware threads `cores`, unless `cores`
  // is empty.
  explicit BackgroundTask(std::function<void(std::stop_token)> work, std::vector<int> cores = {});
  // Requests a stop and waits until the task ends.
  ~BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void request_stop() { thread_.request_stop(); }
  // Returns the message of the task's exception, or an empty string. Must be called after the task has ended.
  const std::string& error() const { return error_; }
  double seconds() const { return seconds_; }

 private:
  std::string error_;
  double seconds_ = 0;
  std::atomic<bool> ended_{false};
  std::jthread thread_;
};

// A checkpoint save in the background. Each rank writes its shards on separate threads, and a thread on rank 0
// publishes the checkpoint. Ranks exchange their progress in poll(), so that only the caller's thread communicates.
//
//   kWriting ──> kPublishing ──> kSaved
//      └──> kGivingUp <─┘ ──> kAbandoned
class BackgroundSave {
 public:
  enum class State : uint8_t { kWriting, kPublishing, kGivingUp, kSaved, kAbandoned };

  // Creates the staging folder. Throws on all ranks if rank 0 fails. Collective. The spans of `values` must stay valid
  // until `values.done` is called or this object is destroyed. See BackgroundTask for `cores`.
  BackgroundSave(SaveJob job, ShardValues values, ProcessGroup& group, FileSystem& files = disk(),
                 std::vector<int> cores = {});
  // Abandons an unfinished save on this rank. Not collective.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Checks the progress of all ranks and starts the next phase. Returns the same state on all ranks. Collective.
  State poll();
  // Removes the rate limit and polls until the checkpoint is saved or abandoned. Collective.
  State wait();

  WritePace& pace() { return pace_; }

  bool in_flight() const { return state_ != State::kSaved && state_ != State::kAbandoned; }
  const SaveJob& job() const { return job_; }
  // Returns the reason for an abandoned save in one sentence, identical on all ranks.
  const std::string& error() const { return error_; }
  // Returns the published checkpoint on rank 0. Must be called only after the checkpoint has been saved.
  const Published& published() const { return published_; }
  // Returns the write time of the slowest rank, excluding the time until the next poll().
  double writing_seconds() const { return writing_seconds_; }
  // Returns the estimated write time of the slowest rank without a rate limit. See WritePace::without_limit().
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
  // Declared last, so that the threads are joined before the objects that they use are destroyed.
  std::unique_ptr<BackgroundTask> writing_;
  std::unique_ptr<BackgroundTask>
      finishing_;  // on rank 0: publishes the checkpoint or removes the files of an abandoned save
};

}  // namespace mpzero::io
