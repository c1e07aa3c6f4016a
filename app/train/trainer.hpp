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

enum class TrainingEnd : uint8_t { kFinished, kStopped };

// The objects that supervise a run.
struct RunControl {
  const StopRequest& stop;
  Watchdog& watchdog;
  double began = seconds_since_1970();  // Unix time of the start, in seconds
  const Ec2Watch* ec2 = nullptr;        // null if this rank does not poll for EC2 notices
  WarningQueue* warnings = nullptr;     // warnings from other threads; may be null
  bool plans = false;                   // log a comparison of the first steps with the plan
  std::string network = {};             // network of the plan; see Network::proven()
};

// This rank's part of a training run, from loading or initializing weights to saving the final checkpoint.
class Trainer {
 public:
  // Collective. `mpi`, `memory` and the objects in `control` must outlive the trainer.
  Trainer(parallel::MpiRuntime& mpi, Network& network, RunSetup setup, at::Device device, RunMemory& memory,
          RunControl control);

  // Trains until max_steps, or until any rank receives a stop request, and then saves a checkpoint. Collective. Throws
  // errors with ErrorScope::kAllRanks on all ranks.
  TrainingEnd run();

 private:
  void start();
  TrainingEnd train_to_the_end();
  bool at_end() const;
  // Returns the final log line of a run that does not save its last step.
  std::string unsaved_end() const;
  // Returns true if the last completed step is a multiple of `frequency`; false if `frequency` is 0.
  bool due(int64_t frequency) const;
  bool validation_is_due() const;
  // Logs the memory estimate and the threads that run the optimizer on the host.
  void log_memory();
  // Runs one optimizer step on the global batch.
  StepReport train_step();
  // Returns the loss of each dataset; empty if any rank received a stop request during validation.
  std::vector<ValidationLoss> validate();
  // Returns the values to sum over all ranks in the step's all-reduce: stop votes, ranks with queued warnings,
  // attention shares, and each rank's time in the previous step, excluding waits for other ranks.
  std::vector<double> figures() const;
  void name_straggler();
  // Starts recording GPU and network metrics of rank 0's host. Collective.
  void record_node();
  // Records the queued warnings of all ranks. Collective.
  void record_warnings();
  // Logs the warnings and messages of a step. Must be called after the step's metrics are logged.
  void comment_on(const StepReport& report, const Profiler::Outcome& trace);
  // Logs the bottleneck and a suggested change once, after the first steps of the run. Collective.
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
  int64_t first_step_ = 0;  // first step of this process
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
  std::string stop_reason_;
  bool stops_ = false;   // any rank has a stop request; identical on all ranks
  bool warned_ = false;  // any rank has queued warnings; identical on all ranks
  Stragglers stragglers_;
  std::optional<ZeroShareWarning> zero_share_;  // only with FP8
  BottleneckWindow first_steps_;
  double attention_share_ = 0;  // sum over the step's micro-batches
  double own_seconds_ = 0;      // last step, excluding waits for other ranks
  Watchdog::Watch watch_;
};

}  // namespace mpzero
