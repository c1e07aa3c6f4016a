#pragma once

#include <cstdint>
#include <span>

#include "base/parameter_spec.hpp"

namespace mpzero {

// Where initial weights come from: a random generator, a safetensors folder, a checkpoint. Callers ask for ranges of a
// parameter, so that no rank holds more than its own shard.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Writes elements [begin, begin + out.size()) of the row-major flattened parameter, as fp32.
  // The values depend on the parameter and the range only, not on earlier calls.
  virtual void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const = 0;
};

}  // namespace mpzero
