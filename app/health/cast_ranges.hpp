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

// Of all ranks. Collective.
model::CastRanges over_ranks(ProcessGroup& group, const model::CastRanges& mine);

// Of all layers: the largest value of an operand's kind, and the largest share of an input that becomes 0.
// std::nullopt: no layer has it in FP8.
std::optional<double> largest_of_layers(const model::CastRanges& ranges, model::LayerProduct product,
                                        model::OperandKind kind);
std::optional<double> largest_zero_share(const model::CastRanges& ranges, model::LayerProduct product);

// {"input": {"down": {"max": [by layer], "zero_share": [by layer]}, ...}, "weight": ..., "gradient": ...}: four
// digits; null for what is not in FP8. Only inputs have "zero_share".
nlohmann::ordered_json to_json(const model::CastRanges& ranges);

// Warns once of an input that loses its small values in FP8.
//
// Scales are those of the numbers at hand, so that nothing overflows: an outlier takes the range from the others
// instead. The outliers that SwiGLU grows over long runs are such ones (Fishman et al., 2024, arXiv:2409.12517: FP8
// diverged after 200 billion tokens, and not with SwiGLU's output in bf16). What they cost shows in the values that
// become 0, which NVIDIA's Transformer Engine counts as underflows. Of silu(a) b for normal a and b, 5% do so where the
// largest value is 2,700 to 5,300 times the standard deviation, by how well it suits a power of two. The error of
// e4m3's three bits is 2.6% then as it was before; it has doubled where the largest is 40,000 times the deviation and
// 22% become 0, and 2.6% have become 12% at 100,000 times. In runs that are well, the share is below 1%.
class ZeroShareWarning {
 public:
  static constexpr double kShare = 0.05;
  // `weight_name`: of a layer's product, as in fp8.filter_fqns.
  ZeroShareWarning(model::fp8::Scaling scaling,
                   std::function<std::string(int64_t layer, model::LayerProduct product)> weight_name)
      : scaling_(scaling), weight_name_(std::move(weight_name)) {}
  // The sentence about the worst input of this step; std::nullopt: none is lost, or it has been said.
  std::optional<std::string> judge(const model::CastRanges& ranges, int64_t step);

 private:
  model::fp8::Scaling scaling_;
  std::function<std::string(int64_t layer, model::LayerProduct product)> weight_name_;
  bool said_ = false;
};

}  // namespace mpzero
