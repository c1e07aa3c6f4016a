#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <vector>

namespace mpzero::parallel {

// The memory that a HostOptimizer uses in addition to the states.
struct HostMemoryPlan {
  int64_t piece_numel = 0;  // elements that are updated at a time
  int64_t pieces = 0;       // buffers for pieces in transfer between host and GPU
  int64_t piece_bytes = 0;  // of each: gradients and parameters
  c10::ScalarType moment_dtype = c10::ScalarType::Float;
  std::map<int64_t, int64_t> spares;  // spare states for updates before the norm is known: number of each length

  int64_t staging_bytes() const { return pieces * piece_bytes; }
  int64_t spare_bytes() const;
};

struct HostMemoryDemand {
  // Lengths of this rank's shards that are updated on the host, in the order of the units. Gradients are ready in the
  // opposite order, so the last units can be updated before the norm is known.
  std::vector<int64_t> lengths;
  bool staged = false;           // the training device is a GPU
  bool parameters_stay = false;  // parameters, or some of them, remain in host memory
  c10::ScalarType gradient_dtype = c10::ScalarType::Float;
  c10::ScalarType parameter_dtype = c10::ScalarType::Float;
  c10::ScalarType moment_dtype = c10::ScalarType::Float;
};

// The most memory for spare states that keeps the total host memory for states, buffers and parameters within 18 bytes
// per parameter.
int64_t default_extra_bytes(const HostMemoryDemand& demand);

// Spare states that fit into `extra_bytes`, for as many of the last units as possible.
HostMemoryPlan plan_host_memory(const HostMemoryDemand& demand, int64_t extra_bytes);

}  // namespace mpzero::parallel
