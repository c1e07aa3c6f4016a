#include "app/health/cast_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/collectives.hpp"

namespace mpzero {
namespace {

using model::CastRange;
using model::CastRanges;
using model::LayerProduct;
using model::OperandKind;
using nlohmann::ordered_json;

std::string_view reads(LayerProduct product) {
  switch (product) {
    case LayerProduct::kQkv:
      return "the query, key and value projection";
    case LayerProduct::kOutput:
      return "the attention output projection";
    case LayerProduct::kGateUp:
      return "the gate and up projections";
    case LayerProduct::kDown:
      break;
  }
  return "the down projection";
}

// Rounds to four significant digits; bf16 has at most three.
ordered_json rounded(double x) {
  return std::isfinite(x) ? ordered_json(std::stod(fmt::format("{:.4g}", x))) : ordered_json();
}

// Returns the maximum of `value` over all layers with the operand in FP8; NaN if any value is NaN.
template <class Value>
std::optional<double> largest(const CastRanges& ranges, LayerProduct product, OperandKind kind, const Value& value) {
  std::optional<double> most;
  for (int64_t layer = 0; layer < ranges.layers(); ++layer) {
    const CastRange& range = ranges.at(layer, product, kind);
    if (range.casts == 0) continue;
    const double x = value(range);
    if (!most || std::isnan(x) || x > *most) most = x;
    if (std::isnan(x)) break;
  }
  return most;
}

template <class Value>
ordered_json by_layer(const CastRanges& ranges, LayerProduct product, OperandKind kind, const Value& value) {
  ordered_json list = ordered_json::array();
  for (int64_t layer = 0; layer < ranges.layers(); ++layer) {
    const CastRange& range = ranges.at(layer, product, kind);
    list.push_back(range.casts == 0 ? ordered_json() : rounded(value(range)));
  }
  return list;
}

}  // namespace

CastRanges over_ranks(ProcessGroup& group, const CastRanges& mine) {
  std::vector<CastRange> all = mine.all();
  const std::vector<std::vector<CastRange>> of_ranks = all_gather(group, all);
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (static_cast<int>(rank) == group.rank()) continue;
    for (size_t i = 0; i < all.size(); ++i) all[i].merge(of_ranks[rank][i]);
  }
  return CastRanges(std::move(all));
}

std::optional<double> largest_of_layers(const CastRanges& ranges, LayerProduct product, OperandKind kind) {
  return largest(ranges, product, kind, [](const CastRange& range) { return range.maximum; });
}

std::optional<double> largest_zero_share(const CastRanges& ranges, LayerProduct product) {
  return largest(ranges, product, OperandKind::kInput, [](const CastRange& range) { return range.zero_share(); });
}

ordered_json to_json(const CastRanges& ranges) {
  ordered_json made;
  for (const OperandKind kind : model::kOperandKinds) {
    for (const LayerProduct product : model::kLayerProducts) {
      ordered_json& of = made[std::string(name(kind))][std::string(name(product))];
      of["max"] = by_layer(ranges, product, kind, [](const CastRange& range) { return range.maximum; });
      if (kind != OperandKind::kInput) continue;
      of["zero_share"] = by_layer(ranges, product, kind, [](const CastRange& range) { return range.zero_share(); });
    }
  }
  return made;
}

std::optional<std::string> ZeroShareWarning::judge(const CastRanges& ranges, int64_t step) {
  if (said_) return std::nullopt;
  const CastRange* worst = nullptr;
  std::pair<int64_t, LayerProduct> place;
  for (int64_t layer = 0; layer < ranges.layers(); ++layer) {
    for (const LayerProduct product : model::kLayerProducts) {
      const CastRange& range = ranges.at(layer, product, OperandKind::kInput);
      if (range.zero_share() < kShare || (worst != nullptr && range.zero_share() <= worst->zero_share())) continue;
      worst = &range;
      place = {layer, product};
    }
  }
  if (worst == nullptr) return std::nullopt;
  said_ = true;
  const auto& [layer, product] = place;
  const bool tensorwise = scaling_ == model::fp8::Scaling::kTensorwise;
  return fmt::format(
      "FP8 underflow: in step {}, {:.0f}% of the input of {} in layer {} became 0 (amax {:.4g}); keep this "
      "projection in bf16 (\"{}\" in fp8.filter_fqns){} or lower the learning rate.",
      step, worst->zero_share() * 100, reads(product), layer, worst->maximum, weight_name_(layer, product),
      tensorwise ? ", scale per row (fp8.recipe rowwise)" : "");
}

}  // namespace mpzero
