#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace mpzero::plan {

// Bytes of the simulated device's tensors.
class SimulatedMemory {
 public:
  // Negative: frees.
  void allocate(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  int64_t now() const { return now_; }
  // Peak bytes since the last call.
  int64_t take_peak() { return std::exchange(peak_, now_); }

 private:
  int64_t now_ = 0, peak_ = 0;
};
SimulatedMemory& simulated_memory();

// Registers SimulatedDevice as a PyTorch device: its streams, events, tensors and operators. Once per process; further
// calls are no-ops.
void register_simulated_backend();

}  // namespace mpzero::plan
