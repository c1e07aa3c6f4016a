#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/log/step_timer.hpp"

namespace mpzero {

// Inputs of bottleneck() in addition to step times.
struct BottleneckFacts {
  bool on_gpu = false;
  int world_size = 1;
  int64_t stage_2_bytes = 0;  // GPU memory that stage 2 would add per rank; 0: the parameters are not sharded
  bool offloads_optimizer = false;
  std::string new_file_keys;  // see new_file_keys(); empty if the run has a ds_config.json
  int64_t micro_batch_tokens = 0;
  int64_t spare_bytes = 0;        // GPU memory that the plan leaves free, per rank
  int64_t host_states_bytes = 0;  // optimizer states in host memory, per rank
  std::optional<double> mfu;
  std::string throttled;  // throttled GPU and reason; empty if no GPU is throttled
};

// Returns the bottleneck and a suggested change; std::nullopt if no rule applies. `means`: mean times of a step, one
// entry per rank; not empty. The first matching rule is reported: (1) a GPU is throttled; (2) data loading takes more
// than 5% of a step, exposed communication more than 10%, or AdamW on the host more than 25% (if several do, the
// largest is reported); (3) a small micro-batch has less than 30% MFU. The data loading rule uses the rank with the
// longest data loading time. The other rules use the rank with the longest time excluding waits. Rule 3 does not apply
// if the median rank waits more than 10% of a step for the slowest rank.
std::optional<std::string> bottleneck(const std::vector<StepSplit>& means, const BottleneckFacts& facts);

// Averages the times of the first steps of a run.
class BottleneckWindow {
 public:
  // Number of warm-up steps to skip, and number of steps to average.
  static constexpr int64_t kWarmUp = 2;
  static constexpr int64_t kSteps = 18;

  // Adds the times of one step. `clipped`: true if the step clipped gradients. Returns true after the window's last
  // step.
  bool add(const StepSplit& split, bool clipped = false);
  StepSplit mean() const { return sum_.divided_by(static_cast<double>(kSteps)); }
  // Returns true if more than half of the averaged steps followed a step with clipped gradients (see
  // parallel::ZeroEngine::begin_step()).
  bool mostly_after_clipping() const { return 2 * after_clipping_ > kSteps; }

 private:
  int64_t seen_ = 0;
  int64_t after_clipping_ = 0;
  bool last_was_clipped_ = false;
  StepSplit sum_;
};

}  // namespace mpzero
