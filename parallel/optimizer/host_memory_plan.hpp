#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <vector>

namespace mpzero::parallel {

// Memory that a HostOptimizer allocates in addition to the states.
struct HostMemoryPlan {
  int64_t piece_numel = 0;  // elements updated at a time
  int64_t pieces = 0;       // number of buffers for pieces in transit between host and GPU
  int64_t piece_bytes = 0;  // bytes per buffer, for gradients and parameters
  // If true, gradients are copied to host memory as soon as they are complete, and updates read the copies. If false,
  // gradients stay on the training device until their unit is updated.
  bool keeps_gradients = false;
  c10::ScalarType moment_dtype = c10::ScalarType::Float;
  std::map<int64_t, int64_t> spares;  // number of spare states by length, for updates before the norm is known

  int64_t staging_bytes() const { return pieces * piece_bytes; }
  int64_t spare_bytes() const;
};

struct HostMemoryDemand {
  // Lengths of this rank's shards that are updated on the host, in unit order. Gradients become ready in reverse order,
  // so the last units can be updated before the gradient norm is known.
  std::vector<int64_t> lengths;
  bool staged = false;           // the training device is a GPU
  bool parameters_stay = false;  // some or all parameters remain in host memory
  bool keeps_gradients = false;  // HostMemoryPlan::keeps_gradients
  c10::ScalarType gradient_dtype = c10::ScalarType::Float;
  c10::ScalarType parameter_dtype = c10::ScalarType::Float;
  c10::ScalarType moment_dtype = c10::ScalarType::Float;
};

// Returns the maximum memory for spare states that keeps the total host memory for states, buffers and parameters
// within 18 bytes per parameter. The total excludes copies of gradients.
int64_t default_extra_bytes(const HostMemoryDemand& demand);

// Returns a plan with spare states for as many of the last units as fit in `extra_bytes`.
HostMemoryPlan plan_host_memory(const HostMemoryDemand& demand, int64_t extra_bytes);

}  // namespace mpzero::parallel
