#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "app/config/run_config.hpp"
#include "app/health/stragglers.hpp"
#include "app/log/metrics_log.hpp"
#include "app/log/step_timer.hpp"
#include "app/memory/run_memory.hpp"
#include "base/process_group.hpp"
#include "base/progress.hpp"

namespace mpzero {

// What one optimizer step did.
struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over the global batch
  double lr = 0;
  double grad_norm = 0;
  double seconds = 0;
  StepSplit split;  // of this rank; see StepTimer::finish_step
  int64_t tokens_seen = 0;
  PeakMemory peak_memory;  // of this rank
  std::optional<double> validation_loss;
  std::optional<SlowestRank> slowest;     // of the step before
  double checkpoint_blocked_seconds = 0;  // that training stood still for checkpoints since the last step's report
};

// What the user sees of the loop: DeepSpeed users' log lines on stdout, each with a line below it that says where the
// time went, a progress bar on stderr, a line of JSON a step in --metrics_file. Only rank 0's log speaks.
class StepLog {
 public:
  // Both outlive the log. `peak_step_seconds`: how long a step would take at the GPU's dense bf16 rate, for the share
  // of it that is reached (MFU); nothing where that rate is not known or does not apply.
  StepLog(const RunConfig& config, ProcessGroup& group, std::optional<double> peak_step_seconds);

  // The run starts, or goes on, behind step `steps_done`.
  void begin(int64_t steps_done, const MetricsOwner& run);
  // A line of its own on stdout.
  void say(const std::string& line);
  // A line of its own on stderr, for what the user may not have meant.
  void warn(const std::string& line);
  // Collective in the steps that get a log line.
  void step(const StepReport& report);

 private:
  void log_line(const StepReport& report);
  void write_metrics(const StepReport& report);

  const RunConfig& config_;
  ProcessGroup& group_;
  bool speaks_;
  std::optional<double> peak_step_seconds_;
  std::optional<ProgressBar> bar_;
  std::optional<MetricsLog> metrics_;
  // Since the last log line.
  int64_t steps_ = 0;
  double seconds_ = 0;
  StepSplit split_;
};

}  // namespace mpzero
