#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/fp8/format.hpp"

namespace mpzero::model::fp8 {

// Granularity of FP8 scales: one scale per tensor, or one per row of each operand (a row spans the inner dimension of
// the matmul).
enum class Scaling : uint8_t { kTensorwise, kRowwise };

constexpr std::string_view name(Scaling scaling) { return scaling == Scaling::kTensorwise ? "tensorwise" : "rowwise"; }

// Selects the matmuls that use fast accumulation in the tensor cores, which keeps fewer bits than fp32 (about 14 on
// Hopper). No effect on CPUs.
enum class FastAccumulation : uint8_t { kNone, kForward, kAll };

struct Recipe {
  Scaling scaling = Scaling::kTensorwise;
  Format gradients = Format::kE5m2;  // inputs and weights are kE4m3
  FastAccumulation fast_accumulation = FastAccumulation::kForward;
  bool operator==(const Recipe&) const = default;
};

}  // namespace mpzero::model::fp8
