// Layers in FP8 on the CPU: against the same products of rounded operands in fp64, and what does not change.
#include <ATen/TensorOperators.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <cmath>

#include "base/error.hpp"
#include "model/architecture/lora.hpp"
#include "model/decoder.hpp"
#include "model/layer_casts.hpp"
#include "model/matmuls.hpp"
#include "tests/catch.hpp"
#include "tests/model/coded_weights.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"
#include "tests/model/storages.hpp"

namespace mpzero::model {
namespace {

constexpr fp8::Scaling kScalings[] = {fp8::Scaling::kTensorwise, fp8::Scaling::kRowwise};
constexpr Recompute kLevels[] = {Recompute::kNone, Recompute::kSelective, Recompute::kAttention, Recompute::kFull};

at::Tensor bf16(at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); }
at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

Fp8Options options(fp8::Scaling scaling, std::vector<std::string> filter_fqns = {}) {
  return {.recipe = {.scaling = scaling}, .filter_fqns = std::move(filter_fqns)};
}

Operand operand(const at::Tensor& x, fp8::Format format, fp8::Scaling scaling) {
  fp8::CastMatrix cast = fp8::cast(x, format, scaling, fp8::Forms::kBoth);
  return {cast.rows, cast.columns};
}

struct LayerRun {
  at::Tensor y, dx;
  std::vector<at::Tensor> gradients;
};

LayerRun run(const ModelConfig& config, const std::optional<Fp8Options>& fp8, Recompute recompute = Recompute::kNone,
             std::optional<uint64_t> version = {}, bool in_codes = false) {
  const Decoder decoder(config, {.fp8 = fp8});
  FlatModel model(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kFloat);
  model.freeze();
  at::manual_seed(7);
  const at::Tensor x = bf16({2, 16, config.hidden_size}), dy = bf16(x.sizes());
  Weights weights = model.weights[1];
  weights.layer = 0;
  weights.version = version;
  std::optional<CodedWeights> codes;
  if (in_codes) weights = codes.emplace(decoder, weights).weights();
  LayerActivations kept;
  LayerRun made;
  made.y = decoder.layer_forward(weights, x, &kept, recompute);
  made.dx = decoder.layer_backward(weights, dy, kept, model.gradients[1]);
  for (const Gradient& gradient : model.gradients[1]) {
    if (gradient.wanted()) made.gradients.push_back(gradient.view());
  }
  return made;
}

bool same_bits(const LayerRun& a, const LayerRun& b) {
  bool same = bitwise_equal(a.y, b.y) && bitwise_equal(a.dx, b.dx);
  for (size_t i = 0; i < a.gradients.size(); ++i) same = same && bitwise_equal(a.gradients[i], b.gradients[i]);
  return same;
}

ModelConfig with_adapters(ModelConfig config) {
  config.lora = LoraConfig{.r = 3, .alpha = 5, .targets = lora_targets(config, "a test")};
  return config;
}

// The Euclidean norm of the difference, relative to that of `expected`.
double distance(const at::Tensor& actual, const at::Tensor& expected) {
  return (wide(actual).sub(wide(expected)).norm() / wide(expected).norm()).item<double>();
}

}  // namespace

TEST_CASE("weights already in FP8 give the same bits as weights cast by the layer") {
  for (const ModelConfig& config : {small_qwen3(), small_qwen2(), with_adapters(small_qwen3())}) {
    for (const std::vector<std::string>& filter : std::vector<std::vector<std::string>>{{}, {"o_proj"}, {"mlp"}}) {
      for (const Recompute recompute : kLevels) {
        INFO(config.model_type << ", recompute " << name(recompute) << ", " << filter.size() << " filtered");
        const Fp8Options fp8 = options(fp8::Scaling::kTensorwise, filter);
        CHECK(same_bits(run(config, fp8, recompute), run(config, fp8, recompute, {}, /*in_codes=*/true)));
      }
    }
  }
}

TEST_CASE("FP8 weights without a scale are refused") {
  const ModelConfig config = small_qwen3();
  const Decoder decoder(config, {.fp8 = options(fp8::Scaling::kTensorwise)});
  FlatModel model(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kFloat);
  const CodedWeights codes(decoder, model.weights[1]);
  Weights weights = codes.weights();
  weights.scales.reset();
  CHECK_THROWS_AS(decoder.layer_forward(weights, bf16({2, 16, config.hidden_size}), nullptr), Failure);
}

TEST_CASE("FP8 matmuls equal matmuls of the rounded operands") {
  Matmuls matmuls;
  for (const fp8::Scaling scaling : kScalings) {
    const Operand x = operand(bf16({48, 64}), fp8::Format::kE4m3, scaling);
    const Operand weight = operand(bf16({96, 64}), fp8::Format::kE4m3, scaling);
    const Operand dy = operand(bf16({48, 96}), fp8::Format::kE5m2, scaling);
    const at::Tensor bias = bf16({96}), addend = bf16({48, 96});
    const auto of_rows = [](const Operand& o) { return wide(fp8::values(o.rows())); };
    const auto of_columns = [](const Operand& o) { return wide(fp8::values(o.columns())); };
    constexpr double kBf16 = 1.0 / 256;  // half a step, relative to the largest value
    const at::Tensor product = of_rows(x).matmul(of_rows(weight).t());
    CHECK(relative_error(matmuls.forward(x, weight), product) < kBf16);
    CHECK(relative_error(matmuls.forward(x, weight, bias), product + wide(bias)) < kBf16);
    CHECK(relative_error(matmuls.forward(x, weight, addend), product + wide(addend)) < kBf16);
    CHECK(relative_error(matmuls.data_gradient(dy, weight), of_rows(dy).matmul(of_columns(weight).t())) < kBf16);
    const at::Tensor expected = of_columns(dy).matmul(of_columns(x).t());
    at::Tensor gradient = at::randn({96, 64});
    matmuls.weight_gradient_out(gradient, dy, x);
    CHECK(relative_error(gradient, expected) < 1e-5);
    matmuls.weight_gradient_out(gradient, dy, x, /*accumulate=*/true);
    CHECK(relative_error(gradient, expected * 2) < 1e-5);
  }
}

TEST_CASE("a matmul of an FP8 operand and a bf16 operand is refused") {
  Matmuls matmuls;
  const Operand x = operand(bf16({16, 32}), fp8::Format::kE4m3, fp8::Scaling::kTensorwise);
  CHECK_THROWS(matmuls.forward(x, bf16({16, 32})));
  CHECK_THROWS(matmuls.forward(Operand(x.rows(), {}), Operand({}, x.columns())));
}

TEST_CASE("an FP8 layer approximates the layer in bf16") {
  std::vector<ModelConfig> models = small_models();
  for (const ModelConfig& config : small_models()) models.push_back(with_adapters(config));
  for (const ModelConfig& config : models) {
    const LayerRun exact = run(config, std::nullopt);
    for (const fp8::Scaling scaling : kScalings) {
      INFO(config.model_type << " " << fp8::name(scaling) << (config.lora ? ", adapters" : ""));
      const LayerRun made = run(config, options(scaling));
      // A cast to e4m3 is off by up to 1/16, to e5m2 by up to 1/8; errors of many terms partly cancel. A norm of the
      // output of attention and MLP brings it, and its error, to the size of the residual.
      const double share = config.model_type == "olmo2" ? 1.5 : 1.0;
      CHECK(distance(made.y, exact.y) < 0.06 * share);
      CHECK(distance(made.y, exact.y) > 1e-4);
      CHECK(distance(made.dx, exact.dx) < 0.12 * share);
      for (size_t i = 0; i < exact.gradients.size(); ++i) {
        INFO(i);
        CHECK(distance(made.gradients[i], exact.gradients[i]) < 0.16 * share);
      }
    }
  }
}

TEST_CASE("an FP8 layer has the same bits at each recompute level, with and without cached weights") {
  for (const ModelConfig& config : {small_qwen3(), small_qwen2(), with_adapters(small_qwen3())}) {
    for (const fp8::Scaling scaling : kScalings) {
      const LayerRun first = run(config, options(scaling));
      for (const Recompute recompute : kLevels) {
        INFO(config.model_type << " " << fp8::name(scaling) << " " << name(recompute));
        CHECK(same_bits(run(config, options(scaling), recompute), first));
        CHECK(same_bits(run(config, options(scaling), recompute, 1), first));
      }
    }
  }
}

TEST_CASE("matmuls matched by filter_fqns stay in bf16") {
  const ModelConfig config = small_qwen3();
  const LayerRun exact = run(config, std::nullopt);
  for (const std::vector<std::string>& all : {std::vector<std::string>{"first"}, {"layers.0"}, {"self_attn", "mlp"}}) {
    CHECK(same_bits(run(config, options(fp8::Scaling::kTensorwise, all)), exact));
  }
  CHECK_FALSE(same_bits(run(config, options(fp8::Scaling::kTensorwise, {"last"})), exact));
}

TEST_CASE("weights are cast again when their version changes") {
  const at::Tensor weight = bf16({32, 48});
  CastWeights kept;
  const CastWeights::Key key{3, LayerProduct::kDown};
  const auto get = [&](uint64_t version) { return kept.get(key, version, weight, fp8::Scaling::kTensorwise).operand; };
  const Operand first = get(1);
  const at::Tensor before = fp8::values(first.rows());
  weight.mul_(2);
  CHECK(bitwise_equal(fp8::values(get(1).rows()), before));
  CHECK(bitwise_equal(fp8::values(get(2).rows()), before * 2));
  // Another decoder's weight, or one that has moved, may have the same version.
  const at::Tensor other = bf16({32, 48});
  CHECK(bitwise_equal(
      fp8::values(kept.get(key, 2, other, fp8::Scaling::kTensorwise).operand.rows()),
      fp8::values(fp8::cast(other, fp8::Format::kE4m3, fp8::Scaling::kTensorwise, fp8::Forms::kRows).rows)));
  CHECK(bitwise_equal(fp8::values(get(2).columns()), (before * 2).t().contiguous()));
}

TEST_CASE("maxima of weights are cached for one version and address") {
  const at::Tensor weight = bf16({32, 48});
  CastWeights kept;
  const CastWeights::Key key{3, LayerProduct::kDown};
  const at::Tensor maximum = fp8::maximum(weight);
  CHECK_FALSE(kept.maximum(key, 1, weight).defined());
  kept.keep_maximum(key, 1, weight, maximum);
  CHECK(kept.maximum(key, 1, weight).is_same(maximum));
  CHECK_FALSE(kept.maximum(key, 2, weight).defined());
  CHECK_FALSE(kept.maximum({4, LayerProduct::kDown}, 1, weight).defined());
  CHECK_FALSE(kept.maximum(key, 1, weight.clone()).defined());
}

TEST_CASE("a layer's weights are cast at each use with the cached maxima, or the casts are cached") {
  const ModelConfig config = small_qwen3();
  for (const fp8::Scaling scaling : kScalings) {
    for (const bool keeps_casts : {false, true}) {
      INFO(fp8::name(scaling) << (keeps_casts ? ", kept" : ""));
      const Fp8Products all{true, true, true, true};
      const at::Tensor weight = bf16({32, 48});
      CastWeights kept;
      const auto cast = [&](uint64_t version, const at::Tensor& from) {
        return LayerCasts(0, all, {.scaling = scaling}, &kept, keeps_casts, version)
            .weight(LayerProduct::kDown, from, fp8::Forms::kRows);
      };
      const auto codes = [](const Operand& operand) { return operand.rows().codes.view(at::kByte).clone(); };
      const at::Tensor first = codes(cast(1, weight)), other = bf16({32, 48}) * 2;
      CHECK(bitwise_equal(codes(cast(1, weight)), first));
      CHECK(bitwise_equal(codes(cast(2, other)),
                          fp8::cast(other, fp8::Format::kE4m3, scaling, fp8::Forms::kRows).rows.codes.view(at::kByte)));
      // A weight that changed without its version: a kept cast is as before, a kept maximum makes other codes, and a
      // row of half the size has the codes of the row.
      const at::Tensor before = codes(cast(2, other));
      other.mul_(0.5);
      const bool as_before = bitwise_equal(codes(cast(2, other)), before);
      CHECK(as_before == (keeps_casts || scaling == fp8::Scaling::kRowwise));
    }
  }
}

TEST_CASE("an FP8 layer requires its index") {
  const ModelConfig config = small_qwen3();
  const Decoder decoder(config, {.fp8 = options(fp8::Scaling::kTensorwise)});
  FlatModel model(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kBFloat16);
  CHECK_THROWS_AS(decoder.layer_forward(model.weights[1], bf16({1, 4, config.hidden_size}), nullptr), Failure);
}

}  // namespace mpzero::model
