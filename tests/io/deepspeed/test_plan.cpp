#include "io/deepspeed/plan.hpp"
#include "model/architecture/architectures.hpp"
#include "tests/catch.hpp"

namespace mpzero::io {
namespace {

model::ModelConfig small_model(std::string_view model_type) {
  model::ModelConfig config;
  config.model_type = model_type;
  config.vocab_size = 11;
  config.hidden_size = config.intermediate_size = config.max_position_embeddings = 8;
  config.num_hidden_layers = config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 4;
  return config;
}

}  // namespace

TEST_CASE("DeepSpeed's files have a place for each weight of each architecture") {
  for (const model::Architecture& architecture : model::architectures()) {
    model::ModelConfig config = small_model(architecture.model_type);
    if (architecture.layer_parameters == nullptr) config.t5 = model::T5Config{.encoder_layers = 1};
    const std::vector<UnitSpec> units = model::model_units(config);
    for (const int stage : {2, 3}) {
      INFO(architecture.model_type << ", stage " << stage);
      TrainingProgress progress;
      progress.dtype = "fp32";
      progress.zero_stage = stage;
      DeepSpeedSettings settings;
      settings.ranks = 2;
      const DeepSpeedPlan plan(progress, units, settings);
      for (const UnitSpec& unit : units) {
        for (const ParameterSpec& parameter : unit.parameters) {
          int64_t found = 0;
          plan.layout().visit(parameter.name, 0, parameter.numel(),
                              [&](const DeepSpeedLayout::Slice& slice) { found += slice.count; });
          CHECK(found == parameter.numel());
        }
      }
    }
  }
}

}  // namespace mpzero::io
