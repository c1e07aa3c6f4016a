#include "app/flags/training_flags.hpp"

namespace mpzero {
namespace {

constexpr Field<bool> kIsBf16{
    .set = [](Settings& settings, bool bf16) { settings.dtype = bf16 ? "bf16" : "fp32"; },
    .get = [](const Settings& settings) -> std::optional<bool> { return settings.dtype == "bf16"; }};

template <auto member>
Integer model_integer() {
  return {.field = field<&Settings::model_overrides, member>, .minimum = 1};
}

template <auto member>
Real model_real() {
  return {.field = field<&Settings::model_overrides, member>, .may_be_minimum = false};
}

}  // namespace

FlagGroup model_flags() {
  return {
      "Model",
      {{.name = "model_type",
        .value = Text{field<&Settings::model_type>},
        .help = "a preset of configs/models; also names the checkpoints",
        .unit = "NAME"},
       {.name = "model_config",
        .value = Text{field<&Settings::model_config>},
        .help = "a Hugging Face config.json, or its folder, instead of a preset",
        .unit = "FILE"},
       {.name = "init_from",
        .value = Text{field<&Settings::init_from>},
        .help = "weights to start from: a Hugging Face folder, the name of a model in the Hugging Face cache, adapters "
                "of PEFT, or a checkpoint, of which only the weights are taken; its model is trained where no other is "
                "named",
        .unit = "DIR",
        .default_text = "random weights"},
       {.name = "base_model",
        .value = Text{field<&Settings::base_model>},
        .help = "base of the adapters that --init_from names: a folder, or the name of a model in the Hugging Face "
                "cache",
        .unit = "DIR",
        .default_text = "as the adapters record it"},
       {.name = "bf16",
        .value = Boolean{kIsBf16},
        .help = "bf16 weights and activations with fp32 master weights; false: fp32",
        .file = FileKey{.name = "bf16.enabled",
                        .read = [](const io::DsConfig& file) { return file.bf16_enabled; },
                        .has_section = [](const io::DsConfig& file) { return file.given(); }},
        .trainer = TrainersFlag{.default_value = "false"}},
       {.name = "fp8",
        .value = choice(field<&Settings::fp8>, {"none", "tensorwise", "rowwise"}, /*alone=*/"tensorwise"),
        .help = "matrix products of decoder layers in FP8, with a scale for each tensor (also without a value) or for "
                "each row; needs bf16, and on GPUs compute capability 8.9 (L40S, H100) or more",
        .file = FileKey{.name = "fp8.recipe"}},
       {.name = "recompute",
        .value = choice<Recomputation>(field<&Settings::recompute>, {{"none", Recomputation::kNone},
                                                                     {"selective", Recomputation::kSelective},
                                                                     {"full", Recomputation::kFull},
                                                                     {"auto", Recomputation::kAuto}}),
        .help = "what a layer does not keep for its backward but computes again: none; selective: what is cheap; full: "
                "all but its input; auto: as little as the GPU's memory asks for, on the CPU nothing"},
       {.name = "gradient_checkpointing",
        .value = Boolean{field<&Settings::gradient_checkpointing>},
        .help = "as the Trainer has it: true is --recompute full, false --recompute none",
        .default_text = "as --recompute says",
        .trainer = TrainersFlag{.default_value = "false"}},
       {.name = "deterministic",
        .value = Boolean{field<&Settings::deterministic>},
        .help = "repeat bit for bit on the GPU too, with slower attention; the CPU always does"}}};
}

FlagGroup override_flags() {
  FlagGroup group{
      "Model fields that replace those of the preset or config.json",
      {{.name = "vocab_size",
        .value = model_integer<&ModelOverrides::vocab_size>(),
        .help = "tokens in the vocabulary"},
       {.name = "hidden_size", .value = model_integer<&ModelOverrides::hidden_size>(), .help = ""},
       {.name = "intermediate_size", .value = model_integer<&ModelOverrides::intermediate_size>(), .help = ""},
       {.name = "num_hidden_layers", .value = model_integer<&ModelOverrides::num_hidden_layers>(), .help = ""},
       {.name = "num_attention_heads", .value = model_integer<&ModelOverrides::num_attention_heads>(), .help = ""},
       {.name = "num_key_value_heads", .value = model_integer<&ModelOverrides::num_key_value_heads>(), .help = ""},
       {.name = "head_dim", .value = model_integer<&ModelOverrides::head_dim>(), .help = ""},
       {.name = "max_position_embeddings",
        .value = model_integer<&ModelOverrides::max_position_embeddings>(),
        .help = "tokens of the longest sequence"},
       {.name = "rms_norm_eps", .value = model_real<&ModelOverrides::rms_norm_eps>(), .help = ""},
       {.name = "rope_theta", .value = model_real<&ModelOverrides::rope_theta>(), .help = ""},
       {.name = "dropout_rate",
        .value = Real{.field = field<&Settings::model_overrides, &ModelOverrides::dropout_rate>, .limit = 1},
        .help = "of T5, in training: the share of activations and attention probabilities that are zeroed"}}};
  for (Flag& flag : group.flags) flag.default_text = "the model's";
  return group;
}

}  // namespace mpzero
