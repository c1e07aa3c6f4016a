#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/process_group.hpp"
#include "model/fp8/cast_watch.hpp"
#include "model/fp8/recipe.hpp"

namespace mpzero {

// Combines the ranges of the FP8 casts on all ranks. Collective.
model::CastRanges over_ranks(ProcessGroup& group, const model::CastRanges& mine);

// Return an operand's largest amax, or the largest fraction of input values that become 0, over all layers. Return
// std::nullopt if the operand is not in FP8 in any layer.
std::optional<double> largest_of_layers(const model::CastRanges& ranges, model::LayerProduct product,
                                        model::OperandKind kind);
std::optional<double> largest_zero_share(const model::CastRanges& ranges, model::LayerProduct product);

// Returns {"input": {"down": {"max": [by layer], "zero_share": [by layer]}, ...}, "weight": ..., "gradient": ...}.
// Values have four significant digits and are null for layers without FP8. Only inputs have "zero_share".
nlohmann::ordered_json to_json(const model::CastRanges& ranges);

// Warns once if small values of an input underflow in FP8.
//
// Scales are computed from the current amax, so values never overflow. Instead, outliers cause small values to
// underflow. SwiGLU produces such outliers in long runs (Fishman et al., 2024, arXiv:2409.12517: FP8 training diverged
// after 200 billion tokens, but not with SwiGLU's output in bf16). The fraction of values that become 0 (underflows in
// the logs of Transformer Engine) measures this effect. For silu(a) * b with normally distributed a and b, 5% of the
// values underflow if the amax is 2,700 to 5,300 times the standard deviation, but the relative error is still only
// 2.6%, the rounding error of e4m3. In healthy runs, less than 1% of the values underflow.
class ZeroShareWarning {
 public:
  static constexpr double kShare = 0.05;
  // `weight_name`: returns the name of a matmul's weight as in fp8.filter_fqns.
  ZeroShareWarning(model::fp8::Scaling scaling,
                   std::function<std::string(int64_t layer, model::LayerProduct product)> weight_name)
      : scaling_(scaling), weight_name_(std::move(weight_name)) {}
  // Returns a warning about the input with the most underflows in this step; std::nullopt if the share is below kShare
  // or a warning was already returned.
  std::optional<std::string> judge(const model::CastRanges& ranges, int64_t step);

 private:
  model::fp8::Scaling scaling_;
  std::function<std::string(int64_t layer, model::LayerProduct product)> weight_name_;
  bool said_ = false;
};

}  // namespace mpzero
