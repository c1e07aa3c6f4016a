// What a watch sees of the casts to FP8: against the tensors themselves, and what does not change it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <utility>

#include "model/architecture/architectures.hpp"
#include "model/decoder.hpp"
#include "model/fp8/cast.hpp"
#include "model/fp8/cast_watch.hpp"
#include "model/kernels/rms_norm.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {
namespace {

using enum LayerProduct;
using enum OperandKind;
constexpr fp8::Scaling kScalings[] = {fp8::Scaling::kTensorwise, fp8::Scaling::kRowwise};

at::Tensor bf16(at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); }
double largest(const at::Tensor& x) { return x.abs().max().to(at::kDouble).item<double>(); }

struct WatchedRun {
  at::Tensor y, dx;
  CastRanges ranges;
};

// One layer of two, in FP8, forward and backward.
struct WatchedLayer {
  ModelConfig config = small_qwen3();
  Decoder decoder;
  FlatModel model;
  at::Tensor x, dy;

  explicit WatchedLayer(fp8::Scaling scaling, std::vector<std::string> filter_fqns = {}, fp8::Format gradients = {})
      : decoder(config, {.fp8 = Fp8Options{.recipe = {.scaling = scaling, .gradients = gradients},
                                           .filter_fqns = std::move(filter_fqns)}}),
        model(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kFloat) {
    at::manual_seed(7);
    x = bf16({2, 16, config.hidden_size});
    dy = bf16(x.sizes());
  }
  Weights weights(std::optional<uint64_t> version = {}) const {
    Weights weights = model.weights[1];
    weights.layer = 0;
    weights.version = version;
    return weights;
  }
  WatchedRun run(bool watched, Recompute recompute = Recompute::kNone, std::optional<uint64_t> version = {}) {
    if (watched) decoder.cast_watch()->begin();
    WatchedRun made;
    LayerActivations kept;
    made.y = decoder.layer_forward(weights(version), x, &kept, recompute);
    made.dx = decoder.layer_backward(weights(version), dy, kept, model.gradients[1]);
    if (watched) decoder.cast_watch()->end();
    made.ranges = decoder.cast_watch()->ranges();
    return made;
  }
};

// Of the casts of x: what the watch says, and all that became 0 and were not.
std::pair<double, double> seen_and_true_share(const at::Tensor& x, fp8::Scaling scaling) {
  const fp8::CastMatrix cast = fp8::cast(x, fp8::Format::kE4m3, scaling, fp8::Forms::kRows);
  CastWatch watch(1);
  watch.begin();
  watch.see(0, kDown, kInput, cast.maxima, cast.rows, x);
  watch.end();
  const at::Tensor lost = fp8::values(cast.rows).eq(0).logical_and(x.ne(0));
  return {watch.ranges().at(0, kDown, kInput).zero_share(), lost.to(at::kDouble).mean().item<double>()};
}

}  // namespace

TEST_CASE("counts input values that underflow to 0 in a cast") {
  // 100 values to the power of two that becomes 256, and as many that are just below and at what e4m3 rounds to 0.
  const float limit = std::ldexp(1.0F, -18);  // 2^-10 of codes, of 2^8 for the largest value
  at::Tensor x = at::zeros({4, 100}, at::kBFloat16);
  x[0].fill_(-1.0F);
  x[1].fill_(limit);
  x[2].fill_(limit * 1.0078125F);
  x[3].fill_(-limit / 2);
  for (const fp8::Scaling scaling : kScalings) {
    CastWatch watch(2);
    watch.begin();
    const fp8::CastMatrix cast = fp8::cast(x, fp8::Format::kE4m3, scaling, fp8::Forms::kBoth);
    watch.see(1, kDown, kInput, cast.maxima, cast.rows, x);
    watch.end();
    const CastRanges ranges = watch.ranges();
    CHECK(ranges.layers() == 2);
    CHECK(ranges.at(0, kDown, kInput).casts == 0);
    const CastRange& range = ranges.at(1, kDown, kInput);
    CHECK(range.casts == 1);
    CHECK(range.maximum == 1);
    // A row with a scale of its own loses nothing to another's.
    CHECK(range.zero_share() == (scaling == fp8::Scaling::kTensorwise ? 0.5 : 0.0));
  }
}

TEST_CASE("samples rows throughout a matrix") {
  at::Tensor x = at::full({1000, 32}, 1e-6, at::kBFloat16);
  x.narrow(0, 500, 500).fill_(3);
  CastWatch watch(1);
  watch.begin();
  const fp8::CastMatrix cast = fp8::cast(x, fp8::Format::kE4m3, fp8::Scaling::kTensorwise, fp8::Forms::kRows);
  watch.see(0, kQkv, kInput, cast.maxima, cast.rows, x);
  watch.end();
  const CastRange range = watch.ranges().at(0, kQkv, kInput);
  CHECK(range.sampled == 64 * 32);
  CHECK(std::abs(range.zero_share() - 0.5) < 0.02);
}

TEST_CASE("does not oversample the first tokens of sequences") {
  at::manual_seed(3);
  for (const auto& [sequences, length] : {std::pair<int64_t, int64_t>{8, 2048}, {4, 8192}, {64, 512}, {64, 1024}}) {
    for (const fp8::Scaling scaling : kScalings) {
      INFO(sequences << " x " << length << " " << fp8::name(scaling));
      at::Tensor x = bf16({sequences, length, 32}).mul_(0.001);
      x.select(1, 0).select(1, 5).fill_(1e6);
      const auto [seen, all] = seen_and_true_share(x.view({-1, 32}), scaling);
      CHECK(std::abs(seen - all) < 0.05);
    }
  }
}

TEST_CASE("values that were 0 before a cast do not count as underflows") {
  at::Tensor x = bf16({256, 32});
  x.narrow(1, 0, 8).zero_();
  for (const fp8::Scaling scaling : kScalings) CHECK(seen_and_true_share(x, scaling).first == 0);
}

TEST_CASE("reports the amax of each operand of a layer") {
  for (const fp8::Scaling scaling : kScalings) {
    INFO(fp8::name(scaling));
    WatchedLayer layer(scaling);
    const CastRanges ranges = layer.run(true).ranges;
    const LayerLayout layout(find_architecture(layer.config.model_type, "test").layer_parameters(layer.config));
    const auto weight = [&](LayerRole role) { return layer.model.weights[1][layout[role]]; };
    const at::Tensor rows = layer.x.reshape({-1, layer.config.hidden_size});
    const RmsNormOutput normed =
        rms_norm_forward(rows, weight(LayerRole::kInputNorm), layer.config.rms_norm_eps, at::Tensor());
    CHECK(ranges.at(0, kQkv, kInput).maximum == largest(normed.y));
    CHECK(ranges.at(0, kDown, kGradient).maximum == largest(layer.dy));
    CHECK(ranges.at(0, kDown, kWeight).maximum == largest(weight(LayerRole::kDown)));
    CHECK(ranges.at(0, kGateUp, kWeight).maximum ==
          std::max(largest(weight(LayerRole::kGate)), largest(weight(LayerRole::kUp))));
    for (const LayerProduct product : kLayerProducts) {
      for (const OperandKind kind : kOperandKinds) {
        INFO(name(product) << " " << name(kind));
        CHECK(ranges.at(0, product, kind).casts == 1);
        CHECK(ranges.at(0, product, kind).maximum > 0);
        CHECK((ranges.at(0, product, kind).sampled > 0) == (kind == kInput));
        CHECK(ranges.at(1, product, kind).casts == 0);
      }
    }
  }
}

TEST_CASE("is independent of recomputation and cached weights, and changes no results") {
  for (const fp8::Scaling scaling : kScalings) {
    WatchedLayer layer(scaling);
    const WatchedRun plain = layer.run(false), first = layer.run(true);
    CHECK(bitwise_equal(plain.y, first.y));
    CHECK(bitwise_equal(plain.dx, first.dx));
    for (const CastRange& range : plain.ranges.all()) CHECK(range.casts == 0);
    // With kept weights, the second time finds them cast.
    for (const auto& [recompute, version] : {std::pair{Recompute::kSelective, std::optional<uint64_t>()},
                                             {Recompute::kFull, std::optional<uint64_t>()},
                                             {Recompute::kNone, std::optional<uint64_t>(1)},
                                             {Recompute::kFull, std::optional<uint64_t>(1)}}) {
      const CastRanges ranges = layer.run(true, recompute, version).ranges;
      for (size_t i = 0; i < ranges.all().size(); ++i) {
        INFO(fp8::name(scaling) << " " << name(recompute) << " operand " << i);
        CHECK(ranges.all()[i].maximum == first.ranges.all()[i].maximum);
        CHECK(ranges.all()[i].zero_share() == first.ranges.all()[i].zero_share());
      }
    }
  }
}

TEST_CASE("accumulates micro-batches and resets at each step") {
  WatchedLayer layer(fp8::Scaling::kTensorwise);
  const at::Tensor small = layer.x;
  layer.decoder.cast_watch()->begin();
  for (const double factor : {1.0, 8.0, 2.0}) {
    LayerActivations kept;
    layer.decoder.layer_forward(layer.weights(), small, &kept, Recompute::kNone);
    layer.decoder.layer_backward(layer.weights(), layer.dy * factor, kept, layer.model.gradients[1]);
  }
  layer.decoder.cast_watch()->end();
  const CastRanges all = layer.decoder.cast_watch()->ranges();
  CHECK(all.at(0, kDown, kGradient).casts == 3);
  CHECK(all.at(0, kDown, kGradient).maximum == 8 * largest(layer.dy));
  const CastRanges next = layer.run(true).ranges;
  CHECK(next.at(0, kDown, kGradient).casts == 1);
  CHECK(next.at(0, kDown, kGradient).maximum == largest(layer.dy));
  CHECK(all.at(0, kQkv, kInput).sampled == 3 * next.at(0, kQkv, kInput).sampled);
}

TEST_CASE("ignores matmuls in bf16") {
  WatchedLayer layer(fp8::Scaling::kTensorwise, {"down_proj"});
  const CastRanges ranges = layer.run(true).ranges;
  for (const OperandKind kind : kOperandKinds) {
    CHECK(ranges.at(0, kDown, kind).casts == 0);
    CHECK(ranges.at(0, kGateUp, kind).casts == 1);
  }
}

TEST_CASE("merges the ranges of two ranks") {
  CastRange a{.casts = 1, .maximum = 2, .sampled = 10, .zeros = 1};
  a.merge({.casts = 1, .maximum = 5, .sampled = 30, .zeros = 3});
  CHECK(a.casts == 2);
  CHECK(a.maximum == 5);
  CHECK(a.zero_share() == 0.1);
  a.merge({.casts = 1, .maximum = std::numeric_limits<double>::quiet_NaN()});
  CHECK(std::isnan(a.maximum));
  a.merge({.casts = 1, .maximum = 7});
  CHECK(std::isnan(a.maximum));
}

TEST_CASE("models without FP8 have no CastWatch") { CHECK(Decoder(small_llama()).cast_watch() == nullptr); }

}  // namespace mpzero::model
