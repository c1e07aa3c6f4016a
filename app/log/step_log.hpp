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

// Mean loss of a validation set, nats per token. `set` is empty if the file has no name, and for the mean over several
// sets.
struct ValidationLoss {
  std::string set;
  double loss = 0;
};

// The results of one optimizer step.
struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over the global batch
  double lr = 0;
  double grad_norm = 0;
  double seconds = 0;
  StepSplit split;  // of this rank; see StepTimer::finish_step
  int64_t tokens_seen = 0;
  int64_t internode_bytes = 0;                  // sent by a node to other nodes; see LevelCommunicators
  PeakMemory peak_memory;                       // of this rank
  std::vector<ValidationLoss> validation = {};  // in steps with a validation
  std::optional<SlowestRank> slowest;           // of the previous step
  std::vector<double> rank_seconds = {};        // of the previous step: each rank's own time, by rank
  double attention_share = 1;                   // of the global batch: see io::MicroBatch::attention_share
  double checkpoint_blocked_seconds = 0;        // pauses for checkpoints since the last step's report
  model::CastRanges casts = {};                 // to FP8, over all ranks; in steps with a log line
};

// Observes a run on rank 0. Called by the training thread: calls must not fail or block.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step(const StepReport& report, std::optional<double> mfu) = 0;
  virtual void checkpoint_saved(double seconds, int64_t bytes, double paused_seconds) = 0;
  virtual void checkpoint_failed() = 0;
  virtual void warned() = 0;
};

// The output of the training loop: log lines like DeepSpeed's on stdout, each followed by a line with the time split, a
// progress bar on stderr, and a line of JSON per step in --metrics_file. Only rank 0 prints.
class StepLog {
 public:
  // `config` and `group` must outlive the log. `peak`: the basis of MFU; std::nullopt if the GPU's rate is unknown or
  // does not apply.
  StepLog(const RunConfig& config, ProcessGroup& group, std::optional<PeakTime> peak);

  // The run starts, or resumes, after step `steps_done`. `start` identifies this start, and `facts`, an object,
  // describes it in the event log.
  void begin(int64_t steps_done, const MetricsOwner& run, const std::string& start,
             const nlohmann::ordered_json& facts);
  // Number of the run's starts in the event log; before begin(), of those before this start. 0 on other ranks than rank
  // 0.
  int64_t earlier_starts(const std::string& run_id) const;
  // Notifies `observer` of all later events and of the number of earlier warnings, on rank 0. It must outlive the log.
  void observe(RunObserver& observer);
  // Prints a line on stdout.
  void say(const std::string& line);
  // Prints a warning on stderr and records it in the event log, even if called before begin().
  void warn(const std::string& line);
  // Records a warning that was already printed.
  void record_warning(const std::string& line);
  // A checkpoint was saved in `seconds`; training paused for `paused_seconds` of them.
  void saved(int64_t step, double seconds, int64_t bytes, double paused_seconds);
  // A checkpoint could not be saved.
  void save_failed();
  // This start ends: "finished", "stopped" or "failed". Prints the run's totals and writes them to summary.json.
  void end(std::string_view status, std::string_view reason = {});
  // end() for another thread of any rank, for when the training thread cannot call it. Call after begin(); the function
  // may outlive the log.
  std::function<void(std::string_view status, std::string_view reason)> late_end() const;
  // Collective in the steps that get a log line.
  void step(const StepReport& report);
  // Whether a step gets a log line.
  bool is_logged(int64_t step) const;
  // MFU of a step that took `step_seconds`; std::nullopt: unknown.
  std::optional<double> mfu(double step_seconds, double attention_share) const;
  // Folder of the events: that of the metrics file, else the checkpoint folder.
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
  // Since the last log line.
  int64_t steps_ = 0;
  double seconds_ = 0;
  double attention_shares_ = 0;  // their sum
  StepSplit split_;
};

}  // namespace mpzero
