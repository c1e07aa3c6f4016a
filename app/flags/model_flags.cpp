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
        .help = "model preset in configs/models, and prefix of checkpoint names",
        .unit = "NAME"},
       {.name = "model_config",
        .value = Text{field<&Settings::model_config>},
        .help = "Hugging Face config.json, or a folder that contains it, used instead of a preset",
        .unit = "FILE"},
       {.name = "init_from",
        .value = Text{field<&Settings::init_from>},
        .help = "initial weights: Hugging Face folder, name of a model in the Hugging Face cache, PEFT adapters, or "
                "checkpoint (weights only). The model configuration is also loaded unless --model_type or "
                "--model_config is set",
        .unit = "DIR",
        .default_text = "random weights"},
       {.name = "base_model",
        .value = Text{field<&Settings::base_model>},
        .help = "base model of the adapters in --init_from: folder, or name of a model in the Hugging Face cache",
        .unit = "DIR",
        .default_text = "base model recorded in the adapters"},
       {.name = "bf16",
        .value = Boolean{kIsBf16},
        .help = "train with bf16 weights and activations and fp32 master weights; false trains in fp32",
        .file = FileKey{.name = "bf16.enabled",
                        .read = [](const io::DsConfig& file) { return file.bf16_enabled; },
                        .has_section = [](const io::DsConfig& file) { return file.given(); }},
        .trainer = TrainersFlag{.default_value = "false"}},
       {.name = "fp8",
        .value = choice(field<&Settings::fp8>, {"none", "tensorwise", "rowwise"}, /*alone=*/"tensorwise"),
        .help = "FP8 matmuls in decoder layers, with one scale per tensor (tensorwise; same as --fp8 without a "
                "value) or per row (rowwise). Requires bf16 and, on GPUs, compute capability 8.9 or later",
        .file = FileKey{.name = "fp8.recipe"}},
       {.name = "recompute",
        .value = choice<Recomputation>(field<&Settings::recompute>, {{"none", Recomputation::kNone},
                                                                     {"selective", Recomputation::kSelective},
                                                                     {"attention", Recomputation::kAttention},
                                                                     {"full", Recomputation::kFull},
                                                                     {"tiled", Recomputation::kTiled},
                                                                     {"host_attention", Recomputation::kHostAttention},
                                                                     {"host", Recomputation::kHost},
                                                                     {"auto", Recomputation::kAuto}}),
        .help = "activation checkpointing: none, selective (recompute cheap operations), attention (store layer "
                "inputs and attention outputs), full (store only layer inputs), tiled (full, with the MLP in tiles of "
                "8,192 tokens), host (tiled, with layer inputs in host memory), host_attention (host, with attention "
                "outputs also in host memory) or auto (the fastest levels that fit in memory)",
        .file = FileKey{.name = "activation_checkpointing.cpu_checkpointing"}},
       {.name = "gradient_checkpointing",
        .value = Boolean{field<&Settings::gradient_checkpointing>},
        .help = "activation checkpointing, as in the Trainer: true is equivalent to --recompute full, false to "
                "--recompute none",
        .default_text = "set by --recompute",
        .trainer = TrainersFlag{.default_value = "false"}},
       {.name = "deterministic",
        .value = Boolean{field<&Settings::deterministic>},
        .help = "bit-identical results on GPUs, with slower attention; CPU runs are always deterministic"}}};
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
        .help = "dropout probability for activations and attention weights (T5)"}}};
  for (Flag& flag : group.flags) flag.default_text = "set by the model";
  return group;
}

}  // namespace mpzero
