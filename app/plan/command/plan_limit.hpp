#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mpzero::plan {

// The size that `mpzero plan` maximizes.
enum class PlanLimit : uint8_t {
  kNone,
  kSeqLength,  // --max_seq_length
  kLayers,     // --largest_model
};

struct LargestFit {
  int64_t value = 0;    // tokens or layers; the smallest value if `fits` is false
  bool fits = false;    // `value` fits
  std::string problem;  // why the next larger value, or the smallest one, does not fit; empty if the maximum fits
};

// Returns the reason why a value does not fit; a null Problem means that the value fits. Calls are slow because they
// search for settings that would fit.
using Problem = std::function<std::string()>;

// Returns the largest multiple of `granularity`, up to `max_value`, that fits. Requires that all values below a value
// that fits also fit. If `problem` throws UserError, the value does not fit; for the smallest value, the error is
// rethrown.
LargestFit largest_fit(int64_t granularity, int64_t max_value, const std::function<Problem(int64_t)>& problem);

}  // namespace mpzero::plan
