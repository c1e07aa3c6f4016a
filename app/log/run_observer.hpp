#pragma once

#include <cstdint>
#include <optional>

namespace mpzero {

struct StepReport;

// Learns what a run does, on rank 0, by the thread that trains. Its calls must not fail and must return at once.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step(const StepReport& report, std::optional<double> mfu) = 0;
  virtual void checkpoint_saved(double seconds, int64_t bytes, double paused_seconds) = 0;
  virtual void checkpoint_failed() = 0;
  virtual void warned() = 0;
};

}  // namespace mpzero
