#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/log/step_timer.hpp"

namespace mpzero {

// What advice on a run depends on, besides its times.
struct BottleneckFacts {
  bool on_gpu = false;
  int world_size = 1;
  int zero_stage = 0;
  bool keeps_parameters = false;  // all of them on each GPU, at stage 3 too: a node has one rank
  bool offloads_optimizer = false;
  int64_t micro_batch_tokens = 0;
  int64_t spare_bytes = 0;        // GPU memory that the plan leaves free, per rank
  int64_t host_states_bytes = 0;  // optimizer states in host memory, of each rank
  std::optional<double> mfu;
  std::string throttled;  // a GPU that is, and why; empty: none
};

// The bottleneck and a suggested change: one sentence. `means`: where the time of a step goes, by rank, not
// empty. std::nullopt: no rule explains it. The rules: a throttled GPU; else the largest of data above 5% of a step,
// exposed communication above 10%, and AdamW on the host above 25%; else a micro-batch with which a GPU reaches less
// than 30% of its rate. Data counts on the rank that waits longest for it. The others count on the rank with the
// longest time of its own: it waits for no other rank. If the others wait for it for over 10% of a step, a micro-batch
// explains nothing.
std::optional<std::string> bottleneck(const std::vector<StepSplit>& means, const BottleneckFacts& facts);

// Averages the times of a run's first steps.
class BottleneckWindow {
 public:
  // Steps that make something new, and steps that are averaged.
  static constexpr int64_t kWarmUp = 2;
  static constexpr int64_t kSteps = 18;

  // Takes the times of one step. True: it was the last one of the window.
  bool add(const StepSplit& split);
  StepSplit mean() const { return sum_.divided_by(static_cast<double>(kSteps)); }

 private:
  int64_t seen_ = 0;
  StepSplit sum_;
};

}  // namespace mpzero
