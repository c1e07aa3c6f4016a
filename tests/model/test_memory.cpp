// What activation_bytes and workspace_bytes say, against what the passes really take on the CPU.
#include <ATen/ops/randn.h>

#include "tests/catch.hpp"
#include "tests/model/flat_model.hpp"
#include "tests/model/small_configs.hpp"
#include "tests/model/storages.hpp"

namespace mpzero::model {

TEST_CASE("a layer keeps as many bytes as activation_bytes says") {
  ModelConfig one_group = small_llama();
  one_group.num_key_value_heads = one_group.num_attention_heads;
  for (const ModelConfig& config : {small_qwen3(), small_llama(), small_qwen2(), one_group}) {
    const Decoder decoder(config);
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      FlatModel model(decoder, at::TensorOptions().dtype(type), type);
      for (const auto& [batch, length] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 13}, {3, 40}}) {
        int64_t more = 0;
        for (const Recompute recompute : {Recompute::kFull, Recompute::kSelective, Recompute::kNone}) {
          INFO(config.model_type << " " << type << " " << batch << "x" << length << " " << name(recompute));
          LayerActivations kept;
          decoder.layer_forward(model.weights[1], at::randn({batch, length, config.hidden_size}).to(type), &kept,
                                recompute);
          const int64_t bytes = decoder.activation_bytes(recompute, batch, length, at::kCPU, type);
          CHECK(storage_bytes(kept.saved) == bytes);
          CHECK(bytes > more);
          more = bytes;
        }
      }
    }
  }
}

TEST_CASE("levels of recomputation have names") {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    CHECK(recompute_of(name(recompute)) == recompute);
  }
  CHECK(name(Recompute::kSelective) == "selective");
  CHECK_FALSE(recompute_of("some").has_value());
}

}  // namespace mpzero::model
