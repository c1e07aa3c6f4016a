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

// Saves a run's checkpoints during training. Training pauses at most for copying the states to host memory, less the
// part that overlaps with the next forward and backward pass; threads write the copy. If host memory is short, training
// waits until the checkpoint is written.
//
// If a save fails, prints a warning and keeps earlier checkpoints, and training continues. The last checkpoint is
// retried; if that fails too, the run ends with an error.
class Checkpointer {
 public:
  using Waits = std::vector<std::chrono::seconds>;
  // All arguments must outlive it. Saves during training write to `files`. `last_save_waits`: the wait before each
  // retry of the last checkpoint.
  Checkpointer(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
               at::Device device, parallel::MpiRuntime& mpi, StepLog& log, RunFolder& folder,
               io::FileSystem& files = io::disk(),
               Waits last_save_waits = {std::chrono::seconds(2), std::chrono::seconds(4), std::chrono::seconds(8)});

  // Call before the first step, with the training state allocated: checks whether host memory fits a copy, and
  // allocates it in the background. `available_bytes`: see available_host_bytes(). Collective.
  void prepare(const RunPosition& at, int64_t available_bytes);

  // Each step calls the following in this order. Collective, like the calls below.
  //
  // Before the engine's update. Returns the seconds that training has paused for checkpoints since the last call.
  double before_update();
  // Before validation, when a save cannot slow down any step.
  void before_validation();
  // After the step, which took `seconds`: polls the save in flight, sets its pace so that steps do not take longer, and
  // saves if --checkpoint_freq or the run's end requires it. Only one checkpoint is written at a time: the next waits
  // for the previous. `stops`: save_last() follows instead.
  void after_step(const RunPosition& position, double seconds, bool stops);

  // Saves the run's last checkpoint if it is not saved yet, and waits for it. Throws on all ranks if it cannot be
  // saved.
  void save_last(const RunPosition& position);
  // Waits for the save in flight. Throws on all ranks if the checkpoint of `last` was due and could not be saved.
  void finish(const RunPosition& last);
  // Waits for the save in flight while another error ends the run on all ranks; errors of the save become warnings.
  void finish_after_error();

  // The step of the newest checkpoint that the run resumed from or saved.
  std::optional<int64_t> saved_step() const { return saved_step_; }
  void resumed_from(int64_t step) { saved_step_ = step; }
  // Expected seconds until a save that starts now is complete, including the save in flight, from the last checkpoint
  // that this run saved; 0: none saved yet. Nothing throttles a save that training waits for, so this is the time at
  // full speed, as far as the disk's own speed is known.
  double expected_save_seconds() const;
  // Bytes per second that this rank may write of the save in flight; std::nullopt: none in flight.
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
  std::unique_ptr<StateSnapshot> snapshot_;  // null: training waits for saves
  std::unique_ptr<io::BackgroundSave> save_;
  std::optional<int64_t> saved_step_;
  std::vector<int> writers_cores_;  // see io::BackgroundTask
  io::SaveThrottle throttle_;
  double save_seconds_ = 0;           // of the last checkpoint, at full speed
  std::optional<int64_t> last_step_;  // step of the last checkpoint if the run stops before max_steps
  std::string last_error_;            // of the last save; empty: it succeeded
  double blocked_seconds_ = 0;        // since before_update()
  double blocked_by_save_ = 0;        // in total, for the save in flight
};

}  // namespace mpzero
