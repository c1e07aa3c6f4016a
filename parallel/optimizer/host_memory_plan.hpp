#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <vector>

namespace mpzero::parallel {

// What a HostOptimizer takes beside the states themselves.
struct HostMemoryPlan {
  int64_t piece_numel = 0;            // elements that are updated at a time
  int64_t pieces = 0;                 // buffers for pieces on their way between host and GPU
  int64_t piece_bytes = 0;            // of each: gradients and parameters
  std::map<int64_t, int64_t> spares;  // states to update ahead of the norm: how many of each length

  int64_t staging_bytes() const { return pieces * piece_bytes; }
  int64_t spare_bytes() const;
};

struct HostMemoryDemand {
  // Lengths of this rank's shares that are updated on the host, in the order of the units. Gradients come in the
  // opposite order, so it is for the last ones that something can be done before the norm is known.
  std::vector<int64_t> lengths;
  bool staged = false;           // the device that trains is a GPU
  bool parameters_stay = false;  // parameters, or some of them, are in host memory
  c10::ScalarType gradient_dtype = c10::ScalarType::Float;
  c10::ScalarType parameter_dtype = c10::ScalarType::Float;
};

// Room for spare states: as much as keeps the host's memory, with states, buffers and the parameters that stay there,
// within 18 bytes a parameter.
int64_t default_extra_bytes(const HostMemoryDemand& demand);

// Spare states within `extra_bytes`, for as many of the last units as that allows.
HostMemoryPlan plan_host_memory(const HostMemoryDemand& demand, int64_t extra_bytes);

}  // namespace mpzero::parallel
