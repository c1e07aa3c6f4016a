#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/log/step_timer.hpp"

namespace mpzero {

// Facts that the advice depends on, besides step times.
struct BottleneckFacts {
  bool on_gpu = false;
  int world_size = 1;
  int zero_stage = 0;
  bool keeps_parameters = false;  // each GPU keeps all parameters at stage 3, too: shard groups have one rank
  bool offloads_optimizer = false;
  int64_t micro_batch_tokens = 0;
  int64_t spare_bytes = 0;        // GPU memory that the plan leaves free, per rank
  int64_t host_states_bytes = 0;  // optimizer states in host memory, per rank
  std::optional<double> mfu;
  std::string throttled;  // the throttled GPU and the reason; empty: none
};

// The bottleneck and a suggested change: one sentence. `means`: mean times of a step, by rank; not empty. std::nullopt:
// no rule applies. Rules, in order: a throttled GPU; the largest of data above 5% of a step, exposed communication
// above 10%, and AdamW on the host above 25%; a micro-batch that reaches less than 30% of the GPU's peak. Data uses the
// rank that waits longest for it. The others use the rank with the longest own time, which waits for no other rank; if
// the others wait for it for over 10% of a step, the micro-batch rule does not apply.
std::optional<std::string> bottleneck(const std::vector<StepSplit>& means, const BottleneckFacts& facts);

// Averages the times of a run's first steps.
class BottleneckWindow {
 public:
  // Skipped warm-up steps, and averaged steps.
  static constexpr int64_t kWarmUp = 2;
  static constexpr int64_t kSteps = 18;

  // Adds the times of one step. Returns true after the last step of the window.
  bool add(const StepSplit& split);
  StepSplit mean() const { return sum_.divided_by(static_cast<double>(kSteps)); }

 private:
  int64_t seen_ = 0;
  StepSplit sum_;
};

}  // namespace mpzero
