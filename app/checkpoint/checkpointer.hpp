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

// Saves a run's checkpoints while it trains on. Training stands still for no longer than it takes to copy the states
// to host memory, less what of that runs during the next forward and backward pass; threads write the copy. Where
// memory for a copy is short, training waits until the checkpoint is written instead.
//
// If a checkpoint cannot be written, a warning is printed, earlier ones are kept and training continues. The last
// checkpoint is retried; if that fails too, the run ends with an error.
class Checkpointer {
 public:
  using Waits = std::vector<std::chrono::seconds>;
  // All arguments outlive it. Saves during training write to `files`. `last_save_waits`: before each further attempt to
  // save the last checkpoint.
  Checkpointer(const RunSetup& setup, const std::vector<UnitSpec>& units, parallel::ZeroEngine& engine,
               at::Device device, parallel::MpiRuntime& mpi, StepLog& log, RunFolder& folder,
               io::FileSystem& files = io::disk(),
               Waits last_save_waits = {std::chrono::seconds(2), std::chrono::seconds(4), std::chrono::seconds(8)});

  // Before the first step, when the training state has its memory: finds out whether there is room for a copy, and
  // takes it in the background. `available_bytes`: see available_host_bytes(). Collective.
  void prepare(const RunPosition& at, int64_t available_bytes);

  // What a step calls, in this order; collective, as all that follow.
  //
  // Before the engine's update. Returns for how many seconds training has stood still for checkpoints since the last
  // call.
  double before_update();
  // Before validation, during which there is no step that a save could slow down.
  void before_validation();
  // After the step, which took `seconds`: sees how far the checkpoint under way is, lets it go on at a pace that keeps
  // steps from taking longer, and saves where --checkpoint_freq or the run's end asks for it. One checkpoint is written
  // at a time: another waits for the one before. `stops`: save_last() follows instead.
  void after_step(const RunPosition& position, double seconds, bool stops);

  // Saves the run's last checkpoint, where it is not there yet, and waits for it. Throws on all ranks if it could not
  // be saved.
  void save_last(const RunPosition& position);
  // Waits for it. Throws on all ranks if the checkpoint of `last`, if it was due, could not be saved.
  void finish(const RunPosition& last);
  // Waits for it while another error ends the run on all ranks; what goes wrong is a warning.
  void finish_after_error();

  // The step of the newest checkpoint: that the run came from or that it has saved.
  std::optional<int64_t> saved_step() const { return saved_step_; }
  void resumed_from(int64_t step) { saved_step_ = step; }
  // How long saving now would take until all is written, by the last checkpoint that this run has saved and the one
  // that is under way; 0: it has not saved any. Nothing holds back a save that training waits for, so that this is the
  // time that they would have taken at full speed; what the pace added is left out where the disk's own speed is known.
  double expected_save_seconds() const;
  // Bytes per second that this rank may write of the checkpoint under way; std::nullopt if there is none.
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
  std::unique_ptr<StateSnapshot> snapshot_;  // none: training waits
  std::unique_ptr<io::BackgroundSave> save_;
  std::optional<int64_t> saved_step_;
  std::vector<int> writers_cores_;  // see io::BackgroundTask
  io::SaveThrottle throttle_;
  double save_seconds_ = 0;           // that the last checkpoint took in all, or would have at full speed
  std::optional<int64_t> last_step_;  // whose checkpoint is the last one, where the run stops before max_steps
  std::string last_error_;            // of the last checkpoint that was abandoned; empty: the last one was saved
  double blocked_seconds_ = 0;        // since before_update()
  double blocked_by_save_ = 0;        // of it and of what was taken, by the checkpoint under way
};

}  // namespace mpzero
