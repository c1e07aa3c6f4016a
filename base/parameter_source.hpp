#pragma once

#include <cstdint>
#include <span>

#include "base/parameter_spec.hpp"

namespace mpzero {

// Source of initial weights: a random generator, a safetensors folder or a checkpoint. Callers read ranges of a
// parameter, so that each rank loads only its own shard.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Writes elements [begin, begin + out.size()) of the row-major flattened parameter to `out`, as fp32. The values
  // depend only on the parameter and the range, not on earlier calls.
  virtual void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const = 0;
};

}  // namespace mpzero
