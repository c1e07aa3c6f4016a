// A full layer, the embedding and the head against LibTorch autograd in fp64.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/oracle.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {
namespace {

std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& weights) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& weight : weights) result.push_back(weight.detach().clone().set_requires_grad(true));
  return result;
}

void check_layer(const ModelConfig& config, Recompute recompute, const DecoderOptions& options = {}) {
  const Decoder decoder(config, options);
  FlatModel model(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
  const at::Tensor x = at::randn({2, 13, config.hidden_size}, at::kDouble);
  const at::Tensor dy = at::randn(x.sizes(), at::kDouble);
  std::vector<at::Tensor> inputs = leaves(model.weights[1]);
  const at::Tensor x_leaf = x.clone().set_requires_grad(true);
  const at::Tensor expected = oracle::layer(config, inputs, x_leaf);
  inputs.push_back(x_leaf);
  const auto expected_gradients = oracle::gradients(expected, inputs, dy);

  LayerActivations activations;
  Weights weights(model.weights[1]);
  weights.layer = 0;
  const at::Tensor y = decoder.layer_forward(weights, x, &activations, recompute);
  CHECK(activations.x.defined());
  CHECK(activations.qkv.defined() == (recompute <= Recompute::kSelective));
  CHECK(activations.attended.out.defined() == (recompute <= Recompute::kSelective || keeps_attention(recompute)));
  const at::Tensor dx = decoder.layer_backward(weights, dy, activations, model.gradients[1]);
  CHECK_FALSE((activations.x.defined() || activations.qkv.defined()));
  CHECK(relative_error(y, expected.detach()) < 1e-11);
  CHECK(relative_error(dx, expected_gradients.back()) < 1e-10);
  for (size_t i = 0; i + 1 < inputs.size(); ++i) {
    INFO(decoder.units()[1].parameters[i].name);
    CHECK(relative_error(model.gradients[1][i].view(), expected_gradients[i]) < 1e-10);
  }
  CHECK(bitwise_equal(decoder.layer_forward(weights, x, nullptr, recompute), y));
}

// Without a loss mask, or with one of uneven weights that masks some tokens.
void check_embedding_and_head(const ModelConfig& config, int64_t max_logits, bool masked) {
  const Decoder decoder(config, {.max_logits = max_logits});
  FlatModel model(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
  const at::Tensor tokens = at::randint(config.vocab_size, {3, 12}, at::kLong);
  const at::Tensor inputs = tokens.narrow(1, 0, 11), targets = tokens.narrow(1, 1, 11);
  const size_t head = decoder.head_unit();
  const bool tied = decoder.tied_head();

  const at::Tensor embedding = model.weights[0][0].clone().set_requires_grad(true);
  const at::Tensor norm = model.weights[head][0].clone().set_requires_grad(true);
  const at::Tensor output = tied ? embedding : model.weights[head][1].clone().set_requires_grad(true);
  const at::Tensor x =
      embedding.index_select(0, inputs.reshape(-1)).view({3, 11, config.hidden_size}) * config.embedding_multiplier;
  const at::Tensor logits =
      at::rms_norm(x, {config.hidden_size}, norm, config.rms_norm_eps).matmul(output.t()) / config.logits_scaling;
  at::Tensor loss_mask;
  if (masked) loss_mask = at::rand({3, 11}, at::kFloat).mul_(2).sub_(0.5).clamp_min_(0);
  const at::Tensor losses = at::cross_entropy_loss(logits.reshape({33, -1}), targets.reshape(-1), {}, /*reduction=*/0);
  const at::Tensor expected = (masked ? losses * loss_mask.reshape(-1) : losses).sum() / 33;
  std::vector<at::Tensor> leaves{embedding, norm};
  if (!tied) leaves.push_back(output);
  const auto expected_gradients = oracle::gradients(expected * 0.5, leaves, at::ones({}, at::kDouble));

  const at::Tensor x_own = decoder.embed_forward(model.weights[0], inputs);
  const at::Tensor& output_weight = tied ? model.weights[0][0] : model.weights[head][1];
  const auto result =
      decoder.head_forward_backward(model.weights[head], output_weight, x_own, targets, 0.5, model.gradients[head],
                                    tied ? model.gradients[0][0] : model.gradients[head][1], loss_mask);
  decoder.embed_backward(result.dx, inputs, model.gradients[0]);
  CHECK(relative_error(result.loss, expected.detach()) < 1e-12);
  CHECK(relative_error(decoder.head_loss(model.weights[head], output_weight, x_own, targets, loss_mask),
                       expected.detach()) < 1e-12);
  CHECK(relative_error(model.gradients[0][0].view(), expected_gradients[0]) < 1e-11);
  CHECK(relative_error(model.gradients[head][0].view(), expected_gradients[1]) < 1e-11);
  if (!tied) CHECK(relative_error(model.gradients[head][1].view(), expected_gradients[2]) < 1e-11);
}

}  // namespace

TEST_CASE("a layer's backward pass agrees with autograd") {
  for (const ModelConfig& config : small_models()) {
    for (const Recompute recompute :
         {Recompute::kNone, Recompute::kSelective, Recompute::kAttention, Recompute::kFull}) {
      INFO(config.model_type << ", recomputed: " << name(recompute));
      check_layer(config, recompute);
    }
  }
}

TEST_CASE("a layer's tiled backward pass agrees with autograd") {
  for (const ModelConfig& config : small_models()) {
    for (const int64_t tile : {1, 7, 25, 26}) {
      INFO(config.model_type << ", tiles of " << tile);
      check_layer(config, Recompute::kTiled, {.mlp_tile = tile});
      check_layer(config, Recompute::kHost, {.mlp_tile = tile});
      check_layer(config, Recompute::kHostAttention, {.mlp_tile = tile});
    }
  }
}

// Oracle: the same weights in fp64.
TEST_CASE("tiled bf16 gradients are as exact as untiled ones, alone and accumulated") {
  for (const ModelConfig& config : {small_qwen3(), small_olmo2()}) {
    const auto gradients = [&](at::ScalarType type, Recompute recompute, bool adds) {
      const Decoder decoder(config, {.mlp_tile = 4});
      FlatModel model(decoder, at::TensorOptions().dtype(at::kBFloat16), type);
      std::vector<at::Tensor> weights;
      // Adjacent, as in a unit.
      const at::Tensor& first = model.weights[1].front();
      const at::Tensor flat = first.as_strided({model.flat_gradients[1].numel()}, {1}).to(type);
      for (const at::Tensor& weight : model.weights[1]) {
        const int64_t begin = weight.storage_offset() - first.storage_offset();
        weights.push_back(flat.narrow(0, begin, weight.numel()).view(weight.sizes()));
      }
      const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
      for (int i = 0; i < (adds ? 2 : 1); ++i) {
        const auto random = [&] {
          return at::randn({2, 125, config.hidden_size}, generator, at::kDouble).to(at::kBFloat16).to(type);
        };
        LayerActivations activations;
        Weights layer(weights);
        layer.layer = 0;
        decoder.layer_forward(layer, random(), &activations, recompute);
        decoder.layer_backward(layer, random(), activations, model.gradients[1]);
      }
      std::vector<at::Tensor> found;
      for (const Gradient& gradient : model.gradients[1]) found.push_back(gradient.view().to(at::kDouble));
      return found;
    };
    for (const bool adds : {false, true}) {
      const auto exact = gradients(at::kDouble, Recompute::kFull, adds);
      const auto at_once = gradients(at::kBFloat16, Recompute::kFull, adds);
      const auto tiled = gradients(at::kBFloat16, Recompute::kTiled, adds);
      for (size_t i = 0; i < exact.size(); ++i) {
        INFO(config.model_type << ", " << Decoder(config).units()[1].parameters[i].name << ", adds " << adds);
        const auto error = [&](const at::Tensor& found) { return (found - exact[i]).norm().item<double>(); };
        CHECK(error(tiled[i]) < 1.1 * error(at_once[i]));
      }
    }
  }
}

TEST_CASE("a layer's backward pass with adapters agrees with autograd") {
  for (ModelConfig config : small_models()) {
    const std::vector<std::string> all = lora_targets(config, "a test");
    for (const size_t part : {0, 1, 2}) {  // every second target, or all
      std::vector<std::string> targets;
      for (size_t i = 0; i < all.size(); ++i) {
        if (part == 2 || i % 2 == part) targets.push_back(all[i]);
      }
      config.lora = LoraConfig{.r = 3, .alpha = 5, .targets = targets, .rslora = part == 0};
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kAttention, Recompute::kFull}) {
        INFO(config.model_type << ", part " << part << ", recomputed: " << name(recompute));
        check_layer(config, recompute);
      }
    }
  }
}

TEST_CASE("embedding and head agree with autograd, in one chunk of tokens and in several") {
  for (const int64_t max_logits : {0, 53 * 33, 53 * 7, 1}) {
    for (const bool masked : {false, true}) {
      check_embedding_and_head(small_qwen3(), max_logits, masked);
      check_embedding_and_head(small_llama(), max_logits, masked);
      check_embedding_and_head(small_granite(), max_logits, masked);
    }
  }
}

// Oracle: the head in one chunk, whose product is rounded once; both compared with fp64.
TEST_CASE("an output weight's bf16 gradient is rounded once, for any number of chunks") {
  for (const ModelConfig& config : {small_qwen3(), small_llama()}) {
    const at::Tensor tokens = at::randint(config.vocab_size, {4, 129}, at::kLong);
    const auto gradient = [&](at::ScalarType type, int64_t max_logits) {
      const Decoder decoder(config, {.max_logits = max_logits});
      FlatModel model(decoder, at::TensorOptions().dtype(type), type);
      model.forward_backward(tokens);
      return config.tie_word_embeddings ? model.gradients[0][0].view() : model.gradients[decoder.head_unit()][1].view();
    };
    const at::Tensor exact = gradient(at::kDouble, 0);
    const auto error = [&](int64_t max_logits) {
      const at::Tensor rounded = gradient(at::kBFloat16, max_logits).to(at::kDouble);
      return (rounded - exact).norm().item<double>() / exact.norm().item<double>();
    };
    CAPTURE(config.model_type);
    // Some CPUs round each chunk's product to bf16 before the sum, which adds a rounding of a smaller number.
    CHECK(error(config.vocab_size * 8) < 2 * error(0));
  }
}

TEST_CASE("weights that are not adjacent are refused") {
  const Decoder decoder(small_qwen3());
  FlatModel model(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  model.weights[1][2] = model.weights[1][2].clone();
  REQUIRE_THROWS(decoder.layer_forward(model.weights[1], at::randn({1, 4, 28}), nullptr));
}

}  // namespace mpzero::model
