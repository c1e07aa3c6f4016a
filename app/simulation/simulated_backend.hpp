#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace mpzero::plan {

// Memory use of tensors on the simulated device, in bytes.
class SimulatedMemory {
 public:
  // Adds `bytes` to the memory in use. A negative number frees memory.
  void allocate(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  int64_t now() const { return now_; }
  // Returns the peak memory in use since the last call.
  int64_t take_peak() { return std::exchange(peak_, now_); }

 private:
  int64_t now_ = 0, peak_ = 0;
};
SimulatedMemory& simulated_memory();

// Registers SimulatedDevice as a PyTorch device with streams, events, tensors and operators. Further calls are no-ops.
void register_simulated_backend();

}  // namespace mpzero::plan
