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
        .help = "model preset in configs/models; also the prefix of checkpoint names",
        .unit = "NAME"},
       {.name = "model_config",
        .value = Text{field<&Settings::model_config>},
        .help = "Hugging Face config.json, or its folder, used instead of a preset",
        .unit = "FILE"},
       {.name = "init_from",
        .value = Text{field<&Settings::init_from>},
        .help = "initial weights: Hugging Face folder, model name in the Hugging Face cache, PEFT adapters, or "
                "checkpoint (weights only); also sets the model unless --model_type or --model_config does",
        .unit = "DIR",
        .default_text = "random weights"},
       {.name = "base_model",
        .value = Text{field<&Settings::base_model>},
        .help = "base of the adapters in --init_from: folder, or model name in the Hugging Face cache",
        .unit = "DIR",
        .default_text = "the base that the adapters record"},
       {.name = "bf16",
        .value = Boolean{kIsBf16},
        .help = "bf16 weights and activations with fp32 master weights; false trains in fp32",
        .file = FileKey{.name = "bf16.enabled",
                        .read = [](const io::DsConfig& file) { return file.bf16_enabled; },
                        .has_section = [](const io::DsConfig& file) { return file.given(); }},
        .trainer = TrainersFlag{.default_value = "false"}},
       {.name = "fp8",
        .value = choice(field<&Settings::fp8>, {"none", "tensorwise", "rowwise"}, /*alone=*/"tensorwise"),
        .help = "FP8 matrix products in decoder layers, with one scale per tensor (tensorwise, the value of a bare "
                "--fp8) or per row (rowwise); needs bf16 and, on GPUs, compute capability 8.9 or later",
        .file = FileKey{.name = "fp8.recipe"}},
       {.name = "recompute",
        .value = choice<Recomputation>(field<&Settings::recompute>, {{"none", Recomputation::kNone},
                                                                     {"selective", Recomputation::kSelective},
                                                                     {"full", Recomputation::kFull},
                                                                     {"tiled", Recomputation::kTiled},
                                                                     {"host", Recomputation::kHost},
                                                                     {"auto", Recomputation::kAuto}}),
        .help = "activation checkpointing: none; selective (recomputes cheap operations); full (keeps layer inputs); "
                "tiled (full, MLP in tiles of 8,192 tokens); host (tiled, layer inputs in host memory); auto (the "
                "least that fits into GPU memory; none on the CPU)",
        .file = FileKey{.name = "activation_checkpointing.cpu_checkpointing"}},
       {.name = "gradient_checkpointing",
        .value = Boolean{field<&Settings::gradient_checkpointing>},
        .help = "the Trainer's flag: true means --recompute full, false --recompute none",
        .default_text = "set by --recompute",
        .trainer = TrainersFlag{.default_value = "false"}},
       {.name = "deterministic",
        .value = Boolean{field<&Settings::deterministic>},
        .help = "bit-identical results on GPUs, with slower attention; the CPU is always deterministic"}}};
}

FlagGroup override_flags() {
  FlagGroup group{
      "Model overrides",
      {{.name = "vocab_size",
        .value = model_integer<&ModelOverrides::vocab_size>(),
        .help = "vocabulary size in tokens"},
       {.name = "hidden_size", .value = model_integer<&ModelOverrides::hidden_size>(), .help = ""},
       {.name = "intermediate_size", .value = model_integer<&ModelOverrides::intermediate_size>(), .help = ""},
       {.name = "num_hidden_layers", .value = model_integer<&ModelOverrides::num_hidden_layers>(), .help = ""},
       {.name = "num_attention_heads", .value = model_integer<&ModelOverrides::num_attention_heads>(), .help = ""},
       {.name = "num_key_value_heads", .value = model_integer<&ModelOverrides::num_key_value_heads>(), .help = ""},
       {.name = "head_dim", .value = model_integer<&ModelOverrides::head_dim>(), .help = ""},
       {.name = "max_position_embeddings",
        .value = model_integer<&ModelOverrides::max_position_embeddings>(),
        .help = "maximum sequence length in tokens"},
       {.name = "rms_norm_eps", .value = model_real<&ModelOverrides::rms_norm_eps>(), .help = ""},
       {.name = "rope_theta", .value = model_real<&ModelOverrides::rope_theta>(), .help = ""},
       {.name = "dropout_rate",
        .value = Real{.field = field<&Settings::model_overrides, &ModelOverrides::dropout_rate>, .limit = 1},
        .help = "dropout of T5 in training, of activations and attention probabilities"}}};
  for (Flag& flag : group.flags) flag.default_text = "from the model";
  return group;
}

}  // namespace mpzero
