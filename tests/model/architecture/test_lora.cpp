#include "model/architecture/architectures.hpp"
#include "model/architecture/lora.hpp"
#include "tests/catch.hpp"
#include "tests/model/small_configs.hpp"

namespace mpzero::model {
namespace {

std::vector<LayerParameter> parameters_of(const ModelConfig& config) {
  return find_architecture(config.model_type, "a test").layer_parameters(config);
}

}  // namespace

TEST_CASE("adapters have as many values as PEFT's") {
  // Counted by PEFT 0.21, all projections with r = 16.
  const auto count = [](const std::string& preset) {
    ModelConfig config = ModelConfig::from_file(MPZERO_SOURCE_DIR "/configs/models/" + preset + ".json");
    const int64_t base = num_parameters(config);
    config.lora = LoraConfig{.r = 16, .alpha = 16, .targets = lora_targets(config, preset)};
    return num_parameters(config) - base;
  };
  CHECK(count("llama_3_8b") == 41'943'040);
  CHECK(count("qwen3_0_6b") == 10'092'544);
}

TEST_CASE("in a matmul's adapters, all A precede all B") {
  ModelConfig config = small_qwen3();
  config.lora = LoraConfig{.r = 3, .alpha = 3, .targets = {"v_proj", "q_proj", "down_proj"}};
  const size_t own = parameters_of(config).size();
  const UnitSpec layer = model_units(config)[1];
  REQUIRE(layer.parameters.size() == own + 6);
  const std::vector<ParameterSpec> adapters(layer.parameters.begin() + static_cast<std::ptrdiff_t>(own),
                                            layer.parameters.end());
  const auto attention = [](const char* name) { return std::string("model.layers.0.self_attn.") + name + ".weight"; };
  CHECK(adapters[0] == ParameterSpec{attention("q_proj.lora_A"), {3, 28}});
  CHECK(adapters[1] == ParameterSpec{attention("v_proj.lora_A"), {3, 28}});
  CHECK(adapters[2] == ParameterSpec{attention("q_proj.lora_B"), {60, 3}});
  CHECK(adapters[3] == ParameterSpec{attention("v_proj.lora_B"), {20, 3}});
  CHECK(adapters[4] == ParameterSpec{"model.layers.0.mlp.down_proj.lora_A.weight", {3, 44}});
  for (size_t i = 0; i < own; ++i) CHECK(!layer.parameters[i].trainable);
  // The columns of v among those of q, k and v.
  CHECK(lora_layout(*config.lora, parameters_of(config))[0][1].begin == 60 + 20);
}

}  // namespace mpzero::model
