#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mpzero::measure {

// One call of the measured operation, on the inputs of set `set`. Its result is kept until the same set is used again,
// so that outputs, like inputs, are in different memory from call to call.
using Body = std::function<std::vector<at::Tensor>(int set)>;

struct Timing {
  double seconds = 0;       // on the device, per call
  double host_seconds = 0;  // that the host takes to queue one call
  // Between the first and third quartile of the rounds, as a share of the time; 0: fewer rounds than kForSpread.
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

// Median, on the CPU lower quartile, over rounds of `sets` calls each, after one that is not timed. On a GPU with CUDA
// events around a round on the current stream; a pause is queued before rounds that the GPU would finish faster than
// the host queues them. Synchronizes the device.
Timing measure(at::Device device, int sets, const Effort& effort, const Body& body);

// The number of sets, of `bytes` each, after which a set has left the last cache when it is used again.
int sets_for(double bytes);

}  // namespace mpzero::measure
