#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>

#include "base/error.hpp"
#include "model/decoder.hpp"
#include "model/inference/cached_decoder.hpp"
#include "model/kernels/rms_norm.hpp"
#include "tests/catch.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"
#include "tests/model/tensor_file.hpp"

namespace mpzero::model {
namespace {

// The logits [T, V] of all positions by Decoder's own forward.
at::Tensor full_logits(const Decoder& decoder, const FlatModel& model, const at::Tensor& tokens) {
  at::Tensor x = decoder.embed_forward(model.weights[0], tokens.unsqueeze(0));
  for (int64_t i = 0; i < decoder.config().num_hidden_layers; ++i) {
    x = decoder.layer_forward(model.layer(i), x, nullptr);
  }
  const auto& head = model.weights[decoder.head_unit()];
  const at::Tensor normed = rms_norm_forward(x.squeeze(0), head[0], decoder.config().rms_norm_eps).y;
  return normed.matmul((decoder.tied_head() ? model.weights[0][0] : head[1]).t()) / decoder.config().logits_scaling;
}

// One head of queries for each of keys, so that a group is a single query.
ModelConfig ungrouped() {
  ModelConfig config = small_llama();
  config.num_key_value_heads = config.num_attention_heads;
  return config;
}

void check_fixture(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(MPZERO_SOURCE_DIR) / "tests/model/fixtures";
  const Decoder decoder(ModelConfig::from_file(folder / (name + ".json")));
  const auto tensors = read_tensor_file(folder / (name + ".safetensors"));
  FlatModel model(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
  for (const std::string& weight : model.names()) model.weight(weight).copy_(tensors.at(weight));
  CachedDecoder cached(decoder.config(), model.weights, 38);
  // The mean loss that transformers has computed over three sequences.
  double sum = 0;
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor tokens = tensors.at("tokens")[b];
    at::Tensor logits = cached.begin(tokens.narrow(0, 0, 1));
    for (int64_t t = 1; t < 38; ++t) {
      sum -= logits.log_softmax(0)[tokens[t].item<int64_t>()].item<double>();
      if (t < 37) logits = cached.append(tokens.narrow(0, t, 1));
    }
  }
  INFO(name);
  CHECK(sum / (3 * 37) == Approx(tensors.at("loss").item<double>()).epsilon(1e-6));
}

}  // namespace

TEST_CASE("logits with a KV cache equal those of the full forward pass at each position") {
  // Sums of up to 44 terms in fp64 and fp32; in bf16 the roundings of some 20 operations of 2^-9 add up.
  const auto [type, tolerance] =
      GENERATE(std::pair(at::kDouble, 1e-13), std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 4e-2));
  std::vector<ModelConfig> configs = small_models();
  configs.push_back(ungrouped());
  for (const ModelConfig& config : configs) {
    const Decoder decoder(config);
    const FlatModel model(decoder, at::TensorOptions().dtype(type), type);
    const at::Tensor tokens = at::randint(config.vocab_size, {23}, at::kLong);
    const at::Tensor expected = full_logits(decoder, model, tokens);
    CachedDecoder cached(config, model.weights, 23);
    for (const int64_t prompt : {1, 2, 17, 23}) {
      INFO(config.model_type << " " << type << ", prompt of " << prompt);
      at::Tensor logits = cached.begin(tokens.narrow(0, 0, prompt));
      CHECK(relative_error(logits, expected[prompt - 1]) < tolerance);
      for (int64_t t = prompt; t < 23; ++t) {
        logits = cached.append(tokens.narrow(0, t, 1));
        CHECK(relative_error(logits, expected[t]) < tolerance);
      }
      CHECK(cached.length() == 23);
    }
  }
}

TEST_CASE("the loss computed token by token matches transformers") {
  for (const char* name : {"qwen3", "qwen2", "llama31", "mistral", "granite", "olmo2", "phi3", "seed_oss", "smollm3"}) {
    check_fixture(name);
  }
}

TEST_CASE("a new sequence carries over no state from the previous one, bit for bit") {
  const Decoder decoder(small_qwen3());
  const FlatModel model(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  const at::Tensor tokens = at::randint(53, {9}, at::kLong);
  CachedDecoder fresh(small_qwen3(), model.weights, 10), used(small_qwen3(), model.weights, 10);
  used.begin(at::randint(53, {10}, at::kLong));
  CHECK(bitwise_equal(used.begin(tokens), fresh.begin(tokens)));
  CHECK(bitwise_equal(used.append(tokens.narrow(0, 3, 1)), fresh.append(tokens.narrow(0, 3, 1))));
}

TEST_CASE("a sequence must not exceed the cache or the model's positions") {
  const Decoder decoder(small_qwen3());
  const FlatModel model(decoder, at::TensorOptions().dtype(at::kFloat), at::kFloat);
  const at::Tensor two = at::tensor({1, 2}, at::kLong), one = two.narrow(0, 0, 1);
  CachedDecoder decoder_of_two(small_qwen3(), model.weights, 2);
  CHECK_THROWS_AS(decoder_of_two.append(one), Failure);
  decoder_of_two.begin(two);
  CHECK_THROWS_AS(decoder_of_two.append(one), Failure);
  CHECK_THROWS_AS(CachedDecoder(small_qwen3(), model.weights, 65), Failure);
  CHECK_THROWS_AS(CachedDecoder(small_qwen3(), {model.weights[0]}, 2), Failure);
}

}  // namespace mpzero::model
