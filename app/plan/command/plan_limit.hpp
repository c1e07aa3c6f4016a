#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/flags/options.hpp"

namespace mpzero::plan {

// The dimension that `mpzero plan` maximizes.
enum class PlanLimit : uint8_t {
  kNone,
  kSeqLength,  // --max_seq_length
  kLayers,     // --largest_model
};

struct LargestFit {
  CommandLine line;     // flags of `mpzero train` with the largest value that fits, or the smallest value if none fits
  int64_t value = 0;    // tokens or layers, a multiple of `granularity`
  std::string problem;  // memory problem of the next larger value; empty if not tried
};

// Returns the memory problem of a run, or "" if the run fits.
using MemoryProblem = std::function<std::string(const CommandLine&)>;

// Returns the longest sequence, or the deepest model with the same layer dimensions, that fits in memory. Assumes that
// memory grows with the value. Tries multiples of `granularity` up to `max_value`. Sets max_position_embeddings to the
// sequence length.
LargestFit largest_fit(PlanLimit limit, const CommandLine& line, int64_t granularity, int64_t max_value,
                       const MemoryProblem& problem);

}  // namespace mpzero::plan
