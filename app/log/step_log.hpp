#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/run_config.hpp"
#include "app/health/stragglers.hpp"
#include "app/log/metrics_log.hpp"
#include "app/log/run_events.hpp"
#include "app/log/step_timer.hpp"
#include "app/memory/gpu_peak.hpp"
#include "app/memory/run_memory.hpp"
#include "base/output.hpp"
#include "base/process_group.hpp"
#include "model/fp8/cast_watch.hpp"

namespace mpzero {

// Mean loss of a validation set in nats per token. `set` is empty for an unnamed file and for the mean over several
// sets.
struct ValidationLoss {
  std::string set;
  double loss = 0;
};

// The results of one optimizer step.
struct StepReport {
  int64_t step = 0;  // counts from 1
  double loss = 0;   // mean over the global batch
  double lr = 0;
  double grad_norm = 0;
  double seconds = 0;
  StepSplit split;  // step time breakdown of this rank; see StepTimer::finish_step()
  int64_t tokens_seen = 0;
  int64_t internode_bytes = 0;                  // bytes that a node sent to other nodes; see LevelCommunicators
  PeakMemory peak_memory;                       // peak memory of this rank
  std::vector<ValidationLoss> validation = {};  // only in steps with validation
  std::optional<SlowestRank> slowest;           // slowest rank of the previous step
  std::vector<double> rank_seconds = {};        // times in the previous step excluding waits, by rank
  double attention_share = 1;                   // mean over the global batch; see io::MicroBatch::attention_share()
  double checkpoint_blocked_seconds = 0;        // pauses for checkpoints since the last report
  model::CastRanges casts = {};                 // FP8 casts of all ranks; only in logged steps
};

// Observer of a run on rank 0. Called by the training thread. Implementations must not throw or block.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step(const StepReport& report, std::optional<double> mfu) = 0;
  virtual void checkpoint_saved(double seconds, int64_t bytes, double paused_seconds) = 0;
  virtual void checkpoint_failed() = 0;
  virtual void warned() = 0;
};

// The output of the training loop: log lines on stdout in DeepSpeed's format, each followed by the step time breakdown;
// a progress bar on stderr; and one line of JSON per step in --metrics_file. Only rank 0 prints.
class StepLog {
 public:
  // `config` and `group` must outlive the log. `peak`: peak rate for MFU; std::nullopt if unknown or not applicable.
  StepLog(const RunConfig& config, ProcessGroup& group, std::optional<PeakTime> peak);

  // Begins the log of a run that has completed `steps_done` steps. `start`: id of this attempt. `facts`: object with
  // the fields of the "start" event.
  void begin(int64_t steps_done, const MetricsOwner& run, const std::string& start,
             const nlohmann::ordered_json& facts);
  // Returns the number of the run's attempts in the event log. Must be called before begin(), which adds this attempt.
  // Returns 0 on all ranks except rank 0.
  int64_t earlier_starts(const std::string& run_id) const;
  // Notifies `observer` of all later events and of the warnings so far. `observer` must outlive the log.
  void observe(RunObserver& observer);
  // Prints a line to stdout.
  void say(const std::string& line);
  // Prints a warning to stderr and records it in the event log. May be called before begin().
  void warn(const std::string& line);
  // Records a warning that has already been printed.
  void record_warning(const std::string& line);
  // Records a saved checkpoint. `seconds`: duration of the save. `paused_seconds`: time for which the save paused
  // training.
  void saved(int64_t step, double seconds, int64_t bytes, double paused_seconds);
  void save_failed();
  // Records the end of the run with the status "finished", "stopped" or "failed". Prints the run's totals and writes
  // summary.json.
  void end(std::string_view status, std::string_view reason = {});
  // Returns a thread-safe variant of end() for all ranks. Must be called after begin(). The returned function may
  // outlive the log.
  std::function<void(std::string_view status, std::string_view reason)> late_end() const;
  // Logs a step. Collective if is_logged(report.step).
  void step(const StepReport& report);
  // Returns true if a step gets a log line.
  bool is_logged(int64_t step) const;
  // Returns the MFU of a step with a duration of `step_seconds`; std::nullopt if unknown.
  std::optional<double> mfu(double step_seconds, double attention_share) const;
  // Returns the folder of events.jsonl: the folder of the metrics file or, without a metrics file, the checkpoint
  // folder.
  std::filesystem::path folder() const;

 private:
  void log_line(const StepReport& report);
  void write_metrics(const StepReport& report);

  const RunConfig& config_;
  ProcessGroup& group_;
  bool prints_;
  std::optional<PeakTime> peak_;
  std::optional<ProgressBar> bar_;
  std::optional<MetricsLog> metrics_;
  std::shared_ptr<RunEvents> events_;
  StartRecord start_;
  RunObserver* observer_ = nullptr;
  std::optional<std::vector<std::string>> early_warnings_ = std::vector<std::string>();  // until begin()
  // Values accumulated since the last log line.
  int64_t steps_ = 0;
  double seconds_ = 0;
  double attention_shares_ = 0;
  StepSplit split_;
};

}  // namespace mpzero
