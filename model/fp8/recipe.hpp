#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/fp8/format.hpp"

namespace mpzero::model::fp8 {

// What shares a scale: a tensor, or each row of an operand along the inner dimension of its product.
enum class Scaling : uint8_t { kTensorwise, kRowwise };

constexpr std::string_view name(Scaling scaling) { return scaling == Scaling::kTensorwise ? "tensorwise" : "rowwise"; }

// Which products add their parts in the matrix units' own registers, which is faster and keeps fewer bits than fp32:
// Hopper's tensor cores keep about 14. It is of no effect on CPUs.
enum class FastAccumulation : uint8_t { kNone, kForward, kAll };

struct Recipe {
  Scaling scaling = Scaling::kTensorwise;
  Format gradients = Format::kE5m2;  // inputs and weights are kE4m3
  FastAccumulation fast_accumulation = FastAccumulation::kForward;
  bool operator==(const Recipe&) const = default;
};

}  // namespace mpzero::model::fp8
