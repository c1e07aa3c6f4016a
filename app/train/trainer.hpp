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

// What supervises a run.
struct RunControl {
  const StopRequest& stop;
  Watchdog& watchdog;
  double began = seconds_since_1970();  // when this start of the run began
  const Ec2Watch* ec2 = nullptr;        // null: EC2's notices are not watched by this rank
  WarningQueue* warnings = nullptr;     // of threads of this rank; null: there are none
  bool plans = false;                   // writes a plan beside the first steps to the log
  std::string network = {};             // for that, see Network::proven()
};

// One training run on this rank: from a checkpoint or fresh weights to the last step's checkpoint.
class Trainer {
 public:
  // Collective. `mpi`, `memory` and what `control` refers to must outlive the trainer.
  Trainer(parallel::MpiRuntime& mpi, Network& network, RunSetup setup, at::Device device, RunMemory& memory,
          RunControl control);

  // Trains until max_steps, or until a rank is asked to stop, and saves. Collective; an error that all ranks learn of
  // is thrown on all.
  TrainingEnd run();

 private:
  void start();
  TrainingEnd train_to_the_end();
  bool at_end() const;
  // The last line of a run without a last checkpoint.
  std::string unsaved_end() const;
  // Whether the step that has just ended is a multiple of `frequency`; 0: never.
  bool due(int64_t frequency) const;
  bool validation_is_due() const;
  // What takes how much memory, and how the host updates.
  void log_memory();
  // One optimizer step over the global batch.
  StepReport train_step();
  // The loss of each set; none if a rank was asked to stop meanwhile.
  std::vector<ValidationLoss> validate();
  // Values added to the step's all-reduce: votes for a stop, ranks with warnings to record, the attention shares of all
  // micro-batches, then each rank's own time in the previous step.
  std::vector<double> figures() const;
  void name_straggler();
  // Records what GPUs and network of rank 0's node do while the run trains. Collective.
  void record_node();
  // Records what other threads of all ranks have warned of. Collective.
  void record_warnings();
  // Logs a step's warnings beside its metrics.
  void comment_on(const StepReport& report, const Profiler::Outcome& trace);
  // Says once, after the run's first steps, what holds them up and what to change. Collective.
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
  bool stops_ = false;   // as all ranks have agreed
  bool warned_ = false;  // likewise: a rank has warnings to record
  Stragglers stragglers_;
  std::optional<ZeroShareWarning> zero_share_;  // with FP8
  BottleneckWindow first_steps_;
  double attention_share_ = 0;  // of the step's micro-batches, their sum
  double own_seconds_ = 0;      // of the last step, without the time waiting for other ranks
  Watchdog::Watch watch_;
};

}  // namespace mpzero
