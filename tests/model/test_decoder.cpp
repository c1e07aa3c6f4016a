#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>

#include "base/error.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {
namespace {

void check_same_gradients(const FlatModel& a, const FlatModel& b) {
  for (size_t unit = 0; unit < a.flat_gradients.size(); ++unit) {
    CHECK(bitwise_equal(a.flat_gradients[unit], b.flat_gradients[unit]));
  }
}

}  // namespace

TEST_CASE("recomputed activations give the same bits") {
  for (const ModelConfig& config : small_models()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Decoder decoder(config);
      const at::Tensor tokens = at::randint(config.vocab_size, {2, 34}, at::kLong);
      FlatModel kept(decoder, at::TensorOptions().dtype(type), at::kFloat);
      const at::Tensor loss = kept.forward_backward(tokens, 1.0, Recompute::kNone);
      // The same losses of tokens: their mean is taken in fp64 there, and in fp32 here.
      CHECK(relative_error(kept.loss(tokens), loss) < 5e-7);
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kAttention, Recompute::kFull}) {
        INFO(config.model_type << " " << type << " " << name(recompute));
        FlatModel recomputed(decoder, at::TensorOptions().dtype(type), at::kFloat);
        CHECK(bitwise_equal(recomputed.forward_backward(tokens, 1.0, recompute), loss));
        check_same_gradients(kept, recomputed);
      }
    }
  }
}

TEST_CASE("a single tile, or a model without tiling, is bitwise equal to full recomputation") {
  ModelConfig adapted = small_qwen3();
  adapted.lora = LoraConfig{.r = 4, .alpha = 8, .targets = {"gate_proj", "down_proj"}};
  for (const auto& [config, options] : {std::pair(small_qwen3(), DecoderOptions{.mlp_tile = 66}),
                                        {small_olmo2(), {.mlp_tile = 66}},
                                        {adapted, {.mlp_tile = 5}},
                                        {small_llama(), {.mlp_tile = 5, .fp8 = Fp8Options()}}}) {
    const Decoder decoder(config, options);
    const at::Tensor tokens = at::randint(config.vocab_size, {2, 34}, at::kLong);
    FlatModel full(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kBFloat16);
    FlatModel host(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kBFloat16);
    FlatModel tiled(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kBFloat16);
    INFO(config.model_type);
    CHECK(bitwise_equal(full.forward_backward(tokens, 1.0, Recompute::kFull),
                        tiled.forward_backward(tokens, 1.0, Recompute::kTiled)));
    check_same_gradients(full, tiled);
    host.forward_backward(tokens, 1.0, Recompute::kHost);
    check_same_gradients(full, host);
    host.reset_gradients();
    host.forward_backward(tokens, 1.0, Recompute::kHostAttention);
    check_same_gradients(full, host);
  }
}

TEST_CASE("a layer with an offloaded input is bitwise equal to a layer with its input on the device") {
  for (const ModelConfig& config : small_models()) {
    const Decoder decoder(config, {.mlp_tile = 16});
    const at::Tensor tokens = at::randint(config.vocab_size, {2, 34}, at::kLong);
    FlatModel tiled(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kFloat);
    FlatModel host(decoder, at::TensorOptions().dtype(at::kBFloat16), at::kFloat);
    INFO(config.model_type);
    CHECK(bitwise_equal(tiled.forward_backward(tokens, 1.0, Recompute::kTiled),
                        host.forward_backward(tokens, 1.0, Recompute::kHost)));
    check_same_gradients(tiled, host);
    host.reset_gradients();
    host.forward_backward(tokens, 1.0, Recompute::kHostAttention);
    check_same_gradients(tiled, host);
  }
}

TEST_CASE("a step has reproducible bits, with or without earlier gradients") {
  const Decoder decoder(small_qwen3());
  const at::Tensor tokens = at::randint(53, {3, 50}, at::kLong);
  FlatModel first(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  FlatModel second(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  first.forward_backward(tokens);
  second.forward_backward(at::randint(53, {1, 9}, at::kLong));
  second.reset_gradients();
  second.forward_backward(tokens);
  check_same_gradients(first, second);
}

// The oracle: each document by itself. Documents of one token, and of more tokens than a block of the CPU's kernels.
TEST_CASE("packed documents have the losses and gradients of separate documents") {
  const std::vector<int32_t> ends{0, 5, 6, 80, 150};
  const int64_t count = ends.back();
  for (const ModelConfig& config : small_models()) {
    const Decoder decoder(config, {.mlp_tile = 32});
    const at::Tensor tokens = at::randint(config.vocab_size, {1, count + 1}, at::kLong);
    for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-12), std::pair(at::kFloat, 1e-6)}) {
      FlatModel packed(decoder, at::TensorOptions().dtype(type), type);
      FlatModel alone(decoder, at::TensorOptions().dtype(type), type);
      // Of a document's tokens the last one has no target.
      at::Tensor loss_mask = at::ones({1, count}, at::kFloat);
      double expected = 0;
      for (size_t i = 1; i < ends.size(); ++i) {
        const int64_t length = ends[i] - ends[i - 1];
        at::Tensor own = at::ones({1, length}, at::kFloat);
        own.select(1, length - 1).fill_(0);
        loss_mask.select(1, ends[i] - 1).fill_(0);
        const auto share = static_cast<double>(length);
        expected +=
            share * alone.forward_backward(tokens.narrow(1, ends[i - 1], length + 1), share, Recompute::kNone, own)
                        .item<double>();
      }
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kFull, Recompute::kTiled, Recompute::kHostAttention}) {
        INFO(config.model_type << " " << type << " " << name(recompute));
        const AttentionMask mask{.documents = documents_on(at::kCPU, ends, 80)};
        packed.reset_gradients();
        const at::Tensor loss = packed.forward_backward(tokens, static_cast<double>(count), recompute, loss_mask, mask);
        CHECK(static_cast<double>(count) * loss.item<double>() == Approx(expected).epsilon(tolerance));
        CHECK(relative_error(packed.loss(tokens, loss_mask, mask), loss) < 5e-7);
        for (size_t unit = 0; unit < packed.flat_gradients.size(); ++unit) {
          CHECK(relative_error(packed.flat_gradients[unit], alone.flat_gradients[unit]) < tolerance);
        }
      }
    }
  }
}

TEST_CASE("documents that do not cover their sequence are refused") {
  CHECK_THROWS_AS(documents_on(at::kCPU, {0, 4, 4}, 8), Failure);
  CHECK_THROWS_AS(documents_on(at::kCPU, {1, 4}, 8), Failure);
  CHECK_THROWS_AS(documents_on(at::kCPU, {0, 9}, 8), Failure);
  const at::Tensor q = at::randint(2, {2, 4, 2, 8}, at::kLong).to(at::kFloat);
  CHECK_THROWS_AS(
      attention_forward(choose_attention_kernel(q), q, q, q, {.documents = documents_on(at::kCPU, {0, 4}, 4)}),
      Failure);
}

TEST_CASE("gradients of several micro-batches add up") {
  for (const ModelConfig& config : small_models()) {
    const Decoder decoder(config);
    const at::Tensor tokens = at::randint(config.vocab_size, {4, 20}, at::kLong);
    FlatModel full(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
    FlatModel parts(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
    full.forward_backward(tokens, 3.0);
    parts.forward_backward(tokens.narrow(0, 0, 2), 1.5);
    parts.forward_backward(tokens.narrow(0, 2, 2), 1.5);
    for (const std::string& name : full.names()) {
      INFO(name);
      CHECK(relative_error(parts.gradient(name), full.gradient(name)) < 1e-11);
    }
  }
}

TEST_CASE("one decoder supports sequences of different lengths in turn") {
  const Decoder decoder(small_llama());
  FlatModel model(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  const at::Tensor tokens = at::randint(53, {2, 30}, at::kLong);
  const at::Tensor before = model.loss(tokens);
  model.loss(tokens.narrow(1, 0, 11));
  CHECK(bitwise_equal(model.loss(tokens), before));
}

TEST_CASE("units contain every parameter once, in the order of the forward pass") {
  const Decoder qwen3(small_qwen3());
  REQUIRE(qwen3.units().size() == 4);
  CHECK(qwen3.units()[0].name == "embedding");
  CHECK(qwen3.units()[qwen3.layer_unit(1)].name == "layers.1");
  CHECK(qwen3.units()[qwen3.head_unit()].parameters.size() == 1);
  CHECK(qwen3.units()[1].parameters[4].name == "model.layers.0.self_attn.q_norm.weight");
  const Decoder llama(small_llama());
  CHECK(llama.units()[llama.head_unit()].parameters[1].name == "lm_head.weight");
  CHECK(llama.units()[1].parameters.size() == 9);
  const Decoder qwen2(small_qwen2());
  CHECK(qwen2.units()[1].parameters.size() == 12);
  CHECK(qwen2.units()[1].parameters[5] == ParameterSpec{"model.layers.0.self_attn.k_proj.bias", {12}});
}

TEST_CASE("an architecture with a weight order that the decoder does not support is refused") {
  using enum LayerRole;
  const auto layout = [](std::vector<LayerRole> roles) {
    std::vector<LayerParameter> parameters;
    for (const LayerRole role : roles) parameters.push_back({role, "", {}});
    return LayerLayout(parameters);
  };
  CHECK(layout({kInputNorm, kQuery, kKey, kValue, kOutput, kPostAttentionNorm, kGate, kUp, kDown})[kUp] == 7);
  CHECK_THROWS_AS(layout({kInputNorm, kKey, kQuery, kValue, kOutput, kPostAttentionNorm, kGate, kUp, kDown}), Failure);
  CHECK_THROWS_AS(layout({kInputNorm, kQuery, kKey, kValue, kOutput, kPostAttentionNorm, kUp, kGate, kDown}), Failure);
  CHECK_THROWS_AS(layout({kInputNorm, kQuery, kKey, kValue, kPostAttentionNorm, kGate, kUp, kDown}), Failure);
  CHECK_THROWS_AS(layout({kInputNorm, kQuery, kValue, kOutput, kPostAttentionNorm, kGate, kUp, kDown}), Failure);
  CHECK(layout({kQuery, kOutput, kGate, kDown}).count_of_qkv() == 1);
  const auto biased = [&](std::vector<LayerRole> biases) {
    std::vector<LayerRole> roles{kInputNorm, kQuery, kKey, kValue, kOutput, kPostAttentionNorm, kGate, kUp, kDown};
    roles.insert(roles.end(), biases.begin(), biases.end());
    return layout(roles);
  };
  CHECK(biased({kQueryBias, kKeyBias, kValueBias})[kValueBias] == 11);
  CHECK_THROWS_AS(biased({kKeyBias, kQueryBias, kValueBias}), Failure);
  CHECK_THROWS_AS(biased({kKeyBias, kValueBias}), Failure);
  CHECK_THROWS_AS(biased({kQueryBias, kKeyBias}), Failure);
  CHECK_THROWS_AS(biased({kValueBias}), Failure);
  CHECK_THROWS_AS(
      layout({kInputNorm, kQuery, kKey, kValue, kQueryNorm, kOutput, kPostAttentionNorm, kGate, kUp, kDown}), Failure);
}

}  // namespace mpzero::model
