#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "app/run_config.hpp"
#include "base/progress.hpp"
#include "io/metrics_log.hpp"

namespace mpzero {

// What one optimizer step did.
struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // mean over the global batch
  double lr = 0;
  double grad_norm = 0;
  double seconds = 0;
  int64_t tokens_seen = 0;
  int64_t peak_memory_bytes = 0;  // of this rank
  std::optional<double> validation_loss;
};

// What the user sees of the loop: DeepSpeed users' log lines on stdout, a progress bar on stderr, a line of JSON a step
// in --metrics_file. Only rank 0's log speaks.
class StepLog {
 public:
  StepLog(const RunConfig& config, bool speaks);

  // The run starts, or goes on, behind step `steps_done`.
  void begin(int64_t steps_done);
  // A line of its own on stdout.
  void say(const std::string& line);
  // A line of its own on stderr, for what the user may not have meant.
  void warn(const std::string& line);
  void step(const StepReport& report);

 private:
  const RunConfig& config_;
  bool speaks_;
  std::optional<ProgressBar> bar_;
  std::optional<io::MetricsLog> metrics_;
  // Since the last log line.
  int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace mpzero
