#pragma once

#include "bench/stopwatch.hpp"

namespace mpzero::bench {

struct GraphTiming {
  double seconds = 0;  // on the GPU, a call
  double kernels = 0;  // that a call launches
};

// The same calls as measure() makes, captured once as a CUDA graph and replayed: what is left when no launch has to be
// waited for. Throws c10::Error where `body` does what cannot be captured.
GraphTiming measure_graph(int sets, int repeats, const Body& body);

}  // namespace mpzero::bench
