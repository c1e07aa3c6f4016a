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

// Chooses how fast a checkpoint may be written during training such that steps take only a little longer than without a
// save, from measured step times. The cost of a byte, in seconds that a step takes longer, is measured during saves and
// carried over from one save to the next.
//
// The first steps during a save run at full speed: the first of them takes longer whatever is written, because states
// are held, and the speed of the disk must be measured.
class SaveThrottle {
 public:
  // How much longer steps during a save may take on average. The goal is 3%; single steps vary by about as much.
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

// Work on a thread of its own, of low priority.
class BackgroundTask {
 public:
  // `cores`: the hardware threads that it and the threads it starts keep to; none: where the system likes.
  explicit BackgroundTask(std::function<void(std::stop_token)> work, std::vector<int> cores = {});
  // Asks it to stop and waits for it.
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

// A checkpoint that is written in the background. Threads of each rank write, rank 0's publishes; what the ranks
// must tell each other they tell in poll(), so that only the caller's thread communicates.
//
//   kWriting ──> kPublishing ──> kSaved
//      └──> kGivingUp <─┘ ──> kAbandoned
class BackgroundSave {
 public:
  enum class State : uint8_t { kWriting, kPublishing, kGivingUp, kSaved, kAbandoned };

  // Collective: makes the folder, throws on all ranks where rank 0 cannot. All spans of `values` stay valid until
  // `values.done` is called, or as long as this lives; both functions are called from another thread. `cores`: see
  // BackgroundTask.
  BackgroundSave(SaveJob job, ShardValues values, ProcessGroup& group, FileSystem& files = disk(),
                 std::vector<int> cores = {});
  // Gives up what has not come to its end, on this rank; not collective.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Sees how far the ranks are and starts what comes next. Collective and quick; all ranks get the same answer.
  State poll();
  // Polls until the checkpoint is saved or abandoned, which comes as fast as it can. Collective.
  State wait();

  // Of this rank's part.
  WritePace& pace() { return pace_; }

  bool in_flight() const { return state_ != State::kSaved && state_ != State::kAbandoned; }
  const SaveJob& job() const { return job_; }
  // Why it was abandoned: one sentence, the same on all ranks.
  const std::string& error() const { return error_; }
  // Rank 0 alone knows, once it is saved.
  const Published& published() const { return published_; }
  // How long the slowest rank wrote, once all have; the time until somebody polled is not counted.
  double writing_seconds() const { return writing_seconds_; }
  // How long it would have written, had no pace held it back, as far as that is known; see WritePace.
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
  std::unique_ptr<BackgroundTask> finishing_;  // rank 0: publishes, or removes what was written in vain
};

}  // namespace mpzero::io
