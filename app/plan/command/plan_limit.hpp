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
  CommandLine line;     // the flags of `mpzero train` with the largest value that fits, else with the smallest one
  int64_t value = 0;    // tokens, or layers; a multiple of `granularity`
  std::string problem;  // of the next larger value: what is short; empty if no larger value was tried
};

// The memory problem of a run, or "" if it fits.
using MemoryProblem = std::function<std::string(const CommandLine&)>;

// The longest sequence (a multiple of 256 tokens per sequence-parallel rank) or the deepest model (the same dimensions
// with another number of layers) without a memory problem, assuming that memory grows with the value.
// `max_value`: the largest value to try. max_position_embeddings is raised to the length.
LargestFit largest_fit(PlanLimit limit, const CommandLine& line, int64_t granularity, int64_t max_value,
                       const MemoryProblem& problem);

}  // namespace mpzero::plan
