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
  // The most bytes at a time since the last call.
  int64_t take_peak() { return std::exchange(peak_, now_); }

 private:
  int64_t now_ = 0, peak_ = 0;
};
SimulatedMemory& simulated_memory();

// Makes PyTorch take SimulatedDevice for a device: its streams, events, tensors and operators. Once for the process;
// more calls do nothing.
void register_simulated_backend();

}  // namespace mpzero::plan
