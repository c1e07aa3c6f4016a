// One sequence with a cache on the GPU against the same in fp64 on the CPU.
#include <ATen/ops/randint.h>

#include <string>
#include <utility>
#include <vector>

#include "model/inference/cached_decoder.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {

TEST_CASE("logits with a KV cache on the GPU agree with fp64 on the CPU") {
  if (!has_gpu()) return;
  // As mpzero generate has it.
  const Deterministic deterministic(true);
  ModelConfig wide = small_qwen3();
  wide.hidden_size = 128;
  wide.intermediate_size = 256;
  wide.head_dim = 64;
  std::vector<ModelConfig> configs = small_models();
  configs.push_back(wide);
  at::manual_seed(5);
  for (const ModelConfig& config : configs) {
    // In bf16 the roundings of some 20 operations of 2^-9 add up.
    for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
             {at::kDouble, 1e-9}, {at::kFloat, 1e-4}, {at::kBFloat16, 4e-2}}) {
      const Decoder decoder(config);
      const FlatModel exact(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
      const FlatModel gpu(decoder, at::TensorOptions().dtype(type).device(at::kCUDA), type);
      for (const std::string& name : exact.names()) exact.weight(name).copy_(gpu.weight(name));
      CachedDecoder expected(config, exact.weights, 40), cached(config, gpu.weights, 40);
      const at::Tensor tokens = at::randint(53, {40}, at::kLong), on_gpu = tokens.to(at::kCUDA);
      for (const int64_t prompt : {1, 11}) {
        INFO(config.model_type << " hidden " << config.hidden_size << " " << type << ", prompt of " << prompt);
        CHECK(relative_error(cached.begin(on_gpu.narrow(0, 0, prompt)), expected.begin(tokens.narrow(0, 0, prompt))) <
              tolerance);
        for (int64_t t = prompt; t < 40; ++t) {
          const at::Tensor logits = cached.append(on_gpu.narrow(0, t, 1));
          CHECK(relative_error(logits, expected.append(tokens.narrow(0, t, 1))) < tolerance);
        }
      }
    }
  }
}

}  // namespace mpzero::model
