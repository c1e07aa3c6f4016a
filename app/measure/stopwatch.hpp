#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mpzero::measure {

// One call of the measured operation, on the inputs of set `set`. The results are kept until the same set is used
// again, so that outputs, like inputs, are in different memory in each call.
using Body = std::function<std::vector<at::Tensor>(int set)>;

struct Timing {
  double seconds = 0;       // on the device, per call
  double host_seconds = 0;  // host time to queue one call
  // Interquartile range of the rounds, as a share of the time; 0: fewer rounds than kForSpread.
  double spread = 0;
  static constexpr int kForSpread = 3;
};

// How often a series of calls is repeated: `repeats` times, or fewer if they take longer than `seconds` together, but
// at least `least` times.
struct Effort {
  int repeats = 20;
  double seconds = 1e9;
  int least = 1;
};

// Median (CPU: lower quartile) over rounds of `sets` calls each, after an untimed round. On a GPU, CUDA events on the
// current stream time each round; a pause is queued before rounds that the GPU would finish faster than the host queues
// them. Synchronizes the device.
Timing measure(at::Device device, int sets, const Effort& effort, const Body& body);

// Number of sets of `bytes` for which a set has left the last-level cache when it is reused.
int sets_for(double bytes);

}  // namespace mpzero::measure
