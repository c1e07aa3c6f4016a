#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "app/checkpoint/checkpointer.hpp"
#include "app/checkpoint/run_folder.hpp"
#include "app/checkpoint/run_state.hpp"
#include "app/config/run_setup.hpp"
#include "app/ec2/ec2_watch.hpp"
#include "app/exporter/node_recorder.hpp"
#include "app/health/cast_ranges.hpp"
#include "app/health/stop_request.hpp"
#include "app/health/stragglers.hpp"
#include "app/log/bottleneck.hpp"
#include "app/log/metrics_log.hpp"
#include "app/log/step_log.hpp"
#include "app/log/step_timer.hpp"
#include "app/log/warning_queue.hpp"
#include "app/memory/run_memory.hpp"
#include "app/memory/state_placement.hpp"
#include "app/train/communicators/network.hpp"
#include "app/train/communicators/run_communicators.hpp"
#include "app/train/metrics_endpoint.hpp"
#include "app/train/profiler.hpp"
#include "app/train/step/training_pass.hpp"
#include "app/train/stop_agreement.hpp"
#include "app/train/validation.hpp"
#include "app/watchdog/watchdog.hpp"
#include "base/text/times.hpp"
#include "io/data/data_loader.hpp"
#include "model/decoder.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/trace/timeline.hpp"
#include "parallel/zero/zero_engine.hpp"

namespace mpzero {

// How a run ended.
enum class TrainingEnd : uint8_t { kFinished, kStopped };

// The objects that supervise a run.
struct RunControl {
  const StopRequest& stop;
  Watchdog& watchdog;
  double began = seconds_since_1970();  // when this start of the run began
  const Ec2Watch* ec2 = nullptr;        // null: this rank does not watch EC2's notices
  WarningQueue* warnings = nullptr;     // from this rank's threads; null: none
  bool plans = false;                   // logs the plan's step time next to that of the first steps
  std::string network = {};             // for the plan: see Network::proven()
};

// One training run on this rank: from a checkpoint or fresh weights to the last step's checkpoint.
class Trainer {
 public:
  // Collective. `mpi`, `memory` and the objects in `control` must outlive the trainer.
  Trainer(parallel::MpiRuntime& mpi, Network& network, RunSetup setup, at::Device device, RunMemory& memory,
          RunControl control);

  // Trains until max_steps, or until a rank has a stop request, and saves. Collective; errors known to all ranks are
  // thrown on all.
  TrainingEnd run();

 private:
  void start();
  TrainingEnd train_to_the_end();
  bool at_end() const;
  // The last log line of a run that does not save its last step.
  std::string unsaved_end() const;
  // Whether the step that has just ended is a multiple of `frequency` (0: never).
  bool due(int64_t frequency) const;
  bool validation_is_due() const;
  // Logs memory by use, and how the host updates states.
  void log_memory();
  // One optimizer step over the global batch.
  StepReport train_step();
  // The loss of each set; empty if a rank got a stop request in the meantime.
  std::vector<ValidationLoss> validate();
  // Values added to the step's all-reduce: stop votes, ranks with warnings to record, attention shares of all
  // micro-batches, and each rank's own time in the previous step.
  std::vector<double> figures() const;
  void name_straggler();
  // Records the GPUs and network of rank 0's host during training. Collective.
  void record_node();
  // Records warnings from other threads of all ranks. Collective.
  void record_warnings();
  // Logs a step's warnings and messages, after its metrics.
  void comment_on(const StepReport& report, const Profiler::Outcome& trace);
  // After the run's first steps, logs the bottleneck and a suggested change once. Collective.
  void advise(const StepReport& report);

  parallel::MpiRuntime& mpi_;
  RunMemory& memory_;
  RunControl control_;
  RunSetup setup_;
  const RunConfig& config_;
  at::Device device_;
  parallel::ZeroOptions zero_options_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<parallel::Timeline> timeline_;
  RunCommunicators communicators_;
  StepTimer timer_;
  parallel::ZeroEngine engine_;
  StatePlacement placement_;
  TrainingPass pass_;
  RunPosition position_;
  int64_t first_step_ = 0;  // of this process
  MetricsOwner metrics_owner_;
  std::optional<io::DataLoader> train_data_;
  std::optional<Validation> validation_;
  Profiler profiler_;
  MetricsEndpoint endpoint_;
  std::unique_ptr<NodeRecorder> node_recorder_;
  StepLog log_;
  RunFolder folder_;
  std::vector<UnitSpec> saved_units_;
  Checkpointer checkpointer_;
  StopAgreement stop_;
  bool stops_ = false;   // agreed by all ranks
  bool warned_ = false;  // agreed by all ranks: some rank has warnings to record
  Stragglers stragglers_;
  std::optional<ZeroShareWarning> zero_share_;  // only with FP8
  BottleneckWindow first_steps_;
  double attention_share_ = 0;  // sum over the step's micro-batches
  double own_seconds_ = 0;      // in the last step, without waiting for other ranks
  Watchdog::Watch watch_;
};

}  // namespace mpzero
