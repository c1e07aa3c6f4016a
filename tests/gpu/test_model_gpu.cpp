// Full models on the GPU against the same in fp64 on the CPU.
#include <ATen/ops/randint.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "model/architecture/lora.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/compare.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {

TEST_CASE("full models on the GPU agree with fp64 on the CPU") {
  if (!has_gpu()) return;
  std::vector<ModelConfig> configs = small_models();
  for (ModelConfig wide : small_models()) {
    wide.hidden_size = 128;
    wide.intermediate_size = 256;
    wide.head_dim = 64;
    configs.push_back(wide);
  }
  ModelConfig adapted = configs.back();
  adapted.lora = LoraConfig{.r = 16, .alpha = 32, .targets = lora_targets(adapted, "a test")};
  configs.push_back(adapted);
  // Attention hardly changes when one vector is added to all keys, so the tokens' contributions to the gradient of such
  // a bias nearly cancel: in bf16 it is exact to the size of these terms, which the gradient of the corresponding
  // weight shows.
  const auto size_of_terms = [](const FlatModel& model, const std::string& name) {
    const size_t bias = name.find("k_proj.bias");
    if (bias == std::string::npos) return 0.0;
    return model.gradient(name.substr(0, bias) + "k_proj.weight").abs().max().item<double>();
  };
  at::manual_seed(5);
  for (const ModelConfig& config : configs) {
    // In bf16 the gradients of these small models are as exact as their rounded activations: the CPU's gradients are
    // the reference.
    for (const auto& [type, gradient_type, tolerance] :
         std::vector<std::tuple<at::ScalarType, at::ScalarType, double>>{{at::kDouble, at::kDouble, 1e-9},
                                                                         {at::kFloat, at::kFloat, 1e-4},
                                                                         {at::kBFloat16, at::kFloat, 2e-2},
                                                                         {at::kBFloat16, at::kBFloat16, 2e-2}}) {
      INFO(config.model_type << " hidden " << config.hidden_size << " " << type);
      const Decoder decoder(config, {.max_logits = 53 * 40});
      FlatModel exact(decoder, at::TensorOptions().dtype(at::kDouble), at::kDouble);
      FlatModel gpu(decoder, at::TensorOptions().dtype(type).device(at::kCUDA), gradient_type);
      const at::Tensor tokens = at::randint(53, {2, 49}, at::kLong);
      const at::Tensor loss = exact.forward_backward(tokens);
      std::optional<FlatModel> rounded;
      if (type == at::kBFloat16) {
        rounded.emplace(decoder, at::TensorOptions().dtype(type), gradient_type);
        rounded->forward_backward(tokens);
      }
      const at::Tensor gpu_tokens = tokens.to(at::kCUDA);
      CHECK(relative_error(gpu.forward_backward(gpu_tokens), loss) < (type == at::kBFloat16 ? 1e-2 : tolerance));
      for (const std::string& name : exact.names()) {
        INFO(name);
        const double scale = type == at::kBFloat16 ? size_of_terms(exact, name) : 0.0;
        const double of_rounding =
            rounded ? 2 * relative_error(rounded->gradient(name), exact.gradient(name), scale) : 0.0;
        CHECK(relative_error(gpu.gradient(name), exact.gradient(name), scale) < tolerance + of_rounding);
      }
      // Deterministic algorithms: a second run, with recomputation, has the same bits.
      const Deterministic on(true);
      FlatModel once(decoder, at::TensorOptions().dtype(type).device(at::kCUDA), gradient_type);
      once.forward_backward(gpu_tokens, 1.0, Recompute::kNone);
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kAttention, Recompute::kFull}) {
        INFO(mpzero::model::name(recompute));
        FlatModel again(decoder, at::TensorOptions().dtype(type).device(at::kCUDA), gradient_type);
        again.forward_backward(gpu_tokens, 1.0, recompute);
        for (size_t unit = 0; unit < once.flat_gradients.size(); ++unit) {
          CHECK(bitwise_equal(once.flat_gradients[unit], again.flat_gradients[unit]));
        }
      }
    }
  }
}

}  // namespace mpzero::model
