#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mpzero::bench {

// One call of the measured operation, on the inputs of set `set`. Its result is kept until the same set is used again,
// so that outputs, like inputs, are in different memory from call to call.
using Body = std::function<std::vector<at::Tensor>(int set)>;

struct Timing {
  double seconds = 0;       // on the GPU, per call
  double host_seconds = 0;  // that the host takes to queue one call
};

// Median over `repeats` rounds of `sets` calls each, with CUDA events around a round on the current stream. A pause is
// queued before rounds that the GPU would finish faster than the host queues them. Synchronizes the device.
Timing measure(int sets, int repeats, const Body& body);

// The number of sets, of `bytes` each, after which a set has left the L2 cache when it is used again.
int sets_for(double bytes);

}  // namespace mpzero::bench
