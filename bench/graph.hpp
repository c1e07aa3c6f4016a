#pragma once

#include "bench/roofline.hpp"

namespace mpzero::bench {

struct GraphTiming {
  double seconds = 0;  // on the GPU, per call
  double kernels = 0;  // launched per call
};

// The calls of time_of(), captured once as a CUDA graph and replayed: the time without waiting for launches. Throws
// c10::Error if `body` does something that cannot be captured.
GraphTiming measure_graph(int sets, int repeats, const Body& body);

}  // namespace mpzero::bench
