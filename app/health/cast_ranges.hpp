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

// The ranges over all ranks. Collective.
model::CastRanges over_ranks(ProcessGroup& group, const model::CastRanges& mine);

// Maximum over all layers: of the values of an operand, and of the share of an input that becomes 0. std::nullopt: no
// layer has the operand in FP8.
std::optional<double> largest_of_layers(const model::CastRanges& ranges, model::LayerProduct product,
                                        model::OperandKind kind);
std::optional<double> largest_zero_share(const model::CastRanges& ranges, model::LayerProduct product);

// {"input": {"down": {"max": [by layer], "zero_share": [by layer]}, ...}, "weight": ..., "gradient": ...}: four digits;
// null if not in FP8. Only inputs have "zero_share".
nlohmann::ordered_json to_json(const model::CastRanges& ranges);

// Warns once about an input whose small values underflow in FP8.
//
// Scales use the current maximum, so nothing overflows; instead, an outlier makes small values underflow. SwiGLU grows
// such outliers in long runs (Fishman et al., 2024, arXiv:2409.12517: FP8 diverged after 200 billion tokens, but not
// with SwiGLU's output in bf16). Their cost is visible as values that become 0 (underflows in NVIDIA's Transformer
// Engine). For silu(a) b with normal a and b, 5% underflow if the maximum is 2,700 to 5,300 times the standard
// deviation, depending on its distance from a power of two. The error is then still 2.6%, that of e4m3's three bits; it
// doubles at 40,000 times, where 22% become 0, and is 12% at 100,000 times. In healthy runs the share is below 1%.
class ZeroShareWarning {
 public:
  static constexpr double kShare = 0.05;
  // `weight_name`: the weight of a product, as in fp8.filter_fqns.
  ZeroShareWarning(model::fp8::Scaling scaling,
                   std::function<std::string(int64_t layer, model::LayerProduct product)> weight_name)
      : scaling_(scaling), weight_name_(std::move(weight_name)) {}
  // A warning about the worst input of this step; std::nullopt: none underflows, or already warned.
  std::optional<std::string> judge(const model::CastRanges& ranges, int64_t step);

 private:
  model::fp8::Scaling scaling_;
  std::function<std::string(int64_t layer, model::LayerProduct product)> weight_name_;
  bool said_ = false;
};

}  // namespace mpzero
