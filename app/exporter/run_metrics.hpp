#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/exporter/families.hpp"
#include "app/log/step_log.hpp"
#include "model/fp8/cast_watch.hpp"

namespace mpzero {

struct RunBeginning {
  double began = 0;        // Unix time in seconds
  int64_t steps_done = 0;  // steps completed before this attempt
  int64_t restarts = 0;    // earlier attempts of the run
  int64_t max_steps = 0;
  bool saves = false;                    // the run saves checkpoints before the final step
  std::optional<int64_t> planned_bytes;  // estimated peak memory of a rank; std::nullopt: no estimate
};

// Prometheus metrics of a run. The training thread updates the metrics, and scrapes read them.
class RunMetrics final : public RunObserver {
 public:
  explicit RunMetrics(int64_t tokens_per_step) : tokens_per_step_(tokens_per_step) {}

  // Must be called before the first scrape.
  void begin(const RunBeginning& beginning) { beginning_ = beginning; }

  void step(const StepReport& report, std::optional<double> mfu) override;
  void checkpoint_saved(double seconds, int64_t bytes, double paused_seconds) override;
  void checkpoint_failed() override;
  void warned() override;

  void collect(Families& families) const;

 private:
  struct Values {
    StepReport last;
    std::optional<double> mfu;
    std::vector<ValidationLoss> validation;  // latest
    model::CastRanges casts;                 // latest
    int64_t steps = 0;
    std::map<std::string, DurationHistogram> parts;
    DurationHistogram durations;
    int64_t checkpoints = 0;
    int64_t failed_checkpoints = 0;
    int64_t warnings = 0;
    double checkpoint_time = 0;  // Unix time in seconds
    double checkpoint_seconds = 0;
    double checkpoint_bytes = 0;
    double paused_seconds = 0;
  };

  const int64_t tokens_per_step_;
  RunBeginning beginning_;
  mutable std::mutex mutex_;
  Values values_;
};

}  // namespace mpzero
