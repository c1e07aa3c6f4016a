#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/run_folder.hpp"
#include "app/checkpoint/run_state.hpp"
#include "app/checkpoint/state_snapshot.hpp"
#include "app/config/run_setup.hpp"
#include "app/log/step_log.hpp"
#include "io/checkpoint_dir/background_save.hpp"
#include "io/files/file_system.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// Saves a run's checkpoints during training. Copies the training state to host memory, overlapped with the next forward
// and backward pass, and writes the copy on background threads. If host memory is too small for a copy, training pauses
// until the checkpoint is written.
//
// If a save fails, training continues with a warning, and earlier checkpoints are kept. The save of the last checkpoint
// is retried; if all retries fail, the run ends with an error.
class Checkpointer {
 public:
  using Waits = std::vector<std::chrono::seconds>;
  // All arguments must outlive this object. `files`: file system for background saves. `last_save_waits`: delay before
  // each retry of the final save.
  Checkpointer(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
               at::Device device, parallel::MpiRuntime& mpi, StepLog& log, RunFolder& folder,
               io::FileSystem& files = io::disk(),
               Waits last_save_waits = {std::chrono::seconds(2), std::chrono::seconds(4), std::chrono::seconds(8)});

  // Must be called before the first step, after the training state is allocated. Allocates host memory for a copy of
  // the state in the background, if enough memory is available. `available_bytes`: see available_host_bytes().
  // Collective.
  void prepare(const RunPosition& at, int64_t available_bytes);

  // In each step, before_update(), before_validation() (only in steps with validation) and after_step() must be called
  // in this order. All functions from before_update() to finish_after_error() are collective.
  //
  // Must be called before the engine's update. Returns the time, in seconds, that training has paused for checkpoints
  // since the previous call.
  double before_update();
  // Must be called before validation. Removes the limit on the write rate of the save in flight, since there is no
  // training step to slow down.
  void before_validation();
  // Must be called after each step. `seconds`: duration of the step. Polls the save in flight, limits its write rate so
  // that training does not slow down, and starts a new save if one is due. Only one save is in flight at a time; a new
  // save waits for the previous one. `stops`: true if the run stops after this step and save_last() will save the
  // checkpoint.
  void after_step(const RunPosition& position, double seconds, bool stops);

  // Saves the run's last checkpoint, unless a checkpoint for this step exists, and waits until the save completes.
  // Throws on all ranks if the save fails.
  void save_last(const RunPosition& position);
  // Waits for the save in flight. Throws on all ranks if a checkpoint was due at `last` and the save failed.
  void finish(const RunPosition& last);
  // Waits for the save in flight after an error on all ranks. Reports errors of the save as warnings.
  void finish_after_error();

  // Step of the newest checkpoint that the run saved or resumed from.
  std::optional<int64_t> saved_step() const { return saved_step_; }
  void resumed_from(int64_t step) { saved_step_ = step; }
  // Returns the estimated duration, in seconds, of a save that starts now, including the remaining time of a save in
  // flight. The estimate is the duration of the run's last save without throttling; 0 before the first save.
  double expected_save_seconds() const;
  // Returns this rank's write limit in bytes per second for the save in flight; std::nullopt if no save is in flight.
  std::optional<double> write_rate() const;

 private:
  int64_t steps_until_next_save(const RunPosition& at) const;
  bool is_due(const RunPosition& at) const;
  void save(const RunPosition& position);
  void watch_save(double step_seconds);
  void save_while_training_waits(const io::SaveJob& job);
  void start_in_background(const io::SaveJob& job);
  void wait_for_save();
  void conclude();
  void remark_on(const io::Published& published);
  void abandon(const io::SaveJob& job, const std::string& reason);

  const RunSetup& setup_;
  const RunConfig& config_;
  const std::vector<UnitSpec>& units_;
  parallel::ZeroEngine& engine_;
  parallel::MpiRuntime& mpi_;
  StepLog& log_;
  RunFolder& folder_;
  io::FileSystem& files_;
  at::Device device_;
  const Waits last_save_waits_;
  std::unique_ptr<StateSnapshot> snapshot_;  // null: saves are synchronous
  std::unique_ptr<io::BackgroundSave> save_;
  std::optional<int64_t> saved_step_;
  std::vector<int> writers_cores_;  // see io::BackgroundTask
  io::SaveThrottle throttle_;
  double save_seconds_ = 0;           // duration of the last save without throttling
  std::optional<int64_t> last_step_;  // step of the last checkpoint; unset until save_last()
  std::string last_error_;            // error of the last save; empty: success
  double blocked_seconds_ = 0;        // seconds that saves have blocked training since the last before_update()
  double blocked_by_save_ = 0;        // seconds that the save in flight has blocked training
};

}  // namespace mpzero
