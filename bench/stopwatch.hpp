#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace mpzero::bench {

// One call of what is measured, on the inputs of number `set`. What it returns is kept until the same set comes round
// again, so that outputs, like inputs, lie in other memory from call to call.
using Body = std::function<std::vector<at::Tensor>(int set)>;

struct Timing {
  double seconds = 0;       // on the GPU, a call
  double host_seconds = 0;  // that the host takes to queue a call
};

// Median over `repeats` rounds of `sets` calls each, with CUDA events around a round on the current stream. A pause
// is queued ahead of rounds that the GPU would go through faster than the host queues them. Synchronizes the device.
Timing measure(int sets, int repeats, const Body& body);

// Enough sets of `bytes` each that one has left the L2 cache when it comes round again.
int sets_for(double bytes);

}  // namespace mpzero::bench
