#include "io/ds_config/ds_config.hpp"

#include <limits>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/ds_config/keys.hpp"
#include "io/ds_config/reader.hpp"
#include "io/ds_config/remedies.hpp"
#include "io/ds_config/zero.hpp"

namespace mpzero::io {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::string kMonitors = "metrics are written to --metrics_file and to the log";
const std::string kTimings =
    "throughput, memory and step times are in --metrics_file, and in the log with --wall_clock_breakdown";
const std::string kNoPython = "this setting affects only DeepSpeed's Python process";

void read_optimizer(ObjectReader& root, OptimizerSection& optimizer) {
  auto section = root.section("optimizer");
  if (!section) return;
  optimizer.present = true;
  const auto type = section->read_text("type");
  if (!type) return section->refuse("type", "is missing; write \"type\": \"AdamW\"");
  const bool adamw = *type == "AdamW" || *type == "adamw" || *type == "Adamw";
  if (!adamw && *type != "Adam" && *type != "adam") {
    return section->refuse("type", fmt::format("is {}, which mpzero does not support; use AdamW", json(*type).dump()));
  }
  section->harmless({"legacy_fusion"});
  if (auto params = section->section("params")) {
    params->read("lr", optimizer.lr, Auto::kAllowed, 0.0, kInfinity);
    params->read("betas", optimizer.betas, Auto::kAllowed, 0.0, 1.0);
    const auto& [beta1, beta2] = optimizer.betas.value;
    if (beta1 == 1.0 || beta2 == 1.0) {
      params->refuse("betas", fmt::format("is [{}, {}]; both must be less than 1", beta1, beta2));
    }
    params->read("eps", optimizer.eps, Auto::kAllowed, 0.0, kInfinity);
    params->read("weight_decay", optimizer.weight_decay, Auto::kAllowed, 0.0, kInfinity);
    params->read("bias_correction", optimizer.bias_correction, Auto::kRefused);
    // AdamW always decouples the weight decay, regardless of adam_w_mode.
    if (adamw) {
      params->harmless({"adam_w_mode"});
    } else {
      params->only("adam_w_mode", true, "set it to true, or use the type AdamW");
    }
    params->only("fp32_optimizer_states", true, "set it to true; the moments are in fp32");
    params->only("amsgrad", false, "set it to false");
    params->harmless({"torch_adam", "fused", "foreach", "set_grad_none"});
    params->not_acted_on({"max_grad_norm"}, 0, "gradients are clipped to gradient_clipping");
    params->finish();
  }
  section->finish();
}

void read_warmup(ObjectReader& params, SchedulerSection& scheduler) {
  params.read("warmup_num_steps", scheduler.warmup_num_steps, Auto::kAllowed, 0);
  params.read("warmup_type", scheduler.warmup_type, Auto::kRefused, {"log", "linear"});
  params.only("last_batch_iteration", -1, "remove it; a resumed run restores the position in the schedule");
}

// `cosine_min_ratio` is a common alias of DeepSpeed's cos_min_ratio.
void read_cos_min_ratio(ObjectReader& params, SchedulerSection& scheduler) {
  Setting<double> other_spelling;
  params.read("cos_min_ratio", scheduler.cos_min_ratio, Auto::kRefused, 0.0, 1.0);
  params.read("cosine_min_ratio", other_spelling, Auto::kRefused, 0.0, 1.0);
  if (!other_spelling.given()) return;
  if (scheduler.cos_min_ratio.given() && scheduler.cos_min_ratio.value != other_spelling.value) {
    params.refuse("cosine_min_ratio", fmt::format("is {}, but its alias cos_min_ratio is {}; remove one of them",
                                                  other_spelling.value, scheduler.cos_min_ratio.value));
  }
  scheduler.cos_min_ratio = other_spelling;
}

void read_scheduler(ObjectReader& root, SchedulerSection& scheduler) {
  auto section = root.section("scheduler");
  if (!section) return;
  Setting<std::string> type;
  section->read("type", type, Auto::kRefused,
                {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"});
  if (!type.given()) return section->refuse("type", "is missing; use WarmupLR, WarmupDecayLR or WarmupCosineLR");
  if (type.value == "OneCycle" || type.value == "LRRangeTest") {
    return section->refuse("type",
                           fmt::format("is \"{}\", which mpzero does not support; use WarmupLR, WarmupDecayLR or "
                                       "WarmupCosineLR",
                                       type.value));
  }
  const bool cosine = type.value == "WarmupCosineLR";
  const bool constant_end = type.value == "WarmupLR";
  scheduler.type = cosine         ? SchedulerType::kWarmupCosineLR
                   : constant_end ? SchedulerType::kWarmupLR
                                  : SchedulerType::kWarmupDecayLR;
  if (auto params = section->section("params")) {
    read_warmup(*params, scheduler);
    if (cosine) {
      params->read("warmup_min_ratio", scheduler.warmup_min_ratio, Auto::kRefused, 0.0, 1.0);
      read_cos_min_ratio(*params, scheduler);
    } else {
      params->read("warmup_min_lr", scheduler.warmup_min_lr, Auto::kAllowed, 0.0, kInfinity);
      params->read("warmup_max_lr", scheduler.warmup_max_lr, Auto::kAllowed, 0.0, kInfinity);
    }
    if (!constant_end) params->read("total_num_steps", scheduler.total_num_steps, Auto::kAllowed, 1);
    params->finish();
  }
  section->finish();
}

void read_precision(ObjectReader& root, DsConfig& config, NotActedOn& not_acted_on) {
  const bool has_bf16 = root.has("bf16");
  if (has_bf16 && root.has("bfloat16")) {
    root.refuse("bfloat16", "is the old name of bf16, which is also set; remove bfloat16");
  }
  auto bf16 = root.section("bf16");
  if (!bf16) bf16 = root.section("bfloat16");
  if (bf16) {
    bf16->read("enabled", config.bf16_enabled, Auto::kAllowed);
    bf16->read("bf16_optimizer_states", config.bf16_optimizer_states, Auto::kRefused);
    Setting<bool> master_and_gradients{false};
    bf16->read("bf16_master_weights_and_grads", master_and_gradients, Auto::kRefused);
    if (master_and_gradients.value) {
      config.grad_accum_dtype.value = "bf16";
      not_acted_on.add(bf16->path_of("bf16_master_weights_and_grads"),
                       "gradients accumulate in bf16, but master weights stay in fp32");
    }
    bf16->harmless({"immediate_grad_update"});
    bf16->not_acted_on({"check_grad_overflow", "check_overflow"}, "auto", "a non-finite loss or gradient ends the run");
    bf16->finish();
  }
  if (auto fp16 = root.section("fp16")) {
    fp16->only("enabled", false, "use \"bf16\": {\"enabled\": true}");
    fp16->harmless({"auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
                    "consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads"});
    fp16->finish();
  }
  root.refuse_enabled("amp", "use \"bf16\": {\"enabled\": true}");
  root.refuse_enabled("torch_autocast", "use \"bf16\": {\"enabled\": true}");
}

// Returns the dtype for a torch dtype name.
std::string compute_type(const std::string& name) {
  if (name.find("bf") != std::string::npos) return "bf16";
  return name == "half" || name.find("16") != std::string::npos ? "fp16" : "fp32";
}

void read_data_types(ObjectReader& root, DsConfig& config) {
  auto section = root.section("data_types");
  if (!section) return;
  const std::vector<std::string> names = {"fp32",           "float32", "float",   "torch.float32", "bf16", "bfloat16",
                                          "torch.bfloat16", "fp16",    "float16", "torch.float16", "half"};
  Setting<std::string> accumulation;
  Setting<std::string> parameters;
  section->read("grad_accum_dtype", accumulation, Auto::kAllowed, names);
  section->read("param_dtype", parameters, Auto::kAllowed, names);
  if (accumulation.given()) {
    const std::string type = compute_type(accumulation.value);
    if (type == "fp16") section->refuse("grad_accum_dtype", "is fp16, which mpzero does not support; use fp32 or bf16");
    config.grad_accum_dtype.value = type;
    config.grad_accum_dtype.source = SettingSource::kGiven;
  }
  const std::string dtype = config.bf16_enabled.value ? "bf16" : "fp32";
  if (parameters.given() && compute_type(parameters.value) != dtype) {
    section->refuse("param_dtype",
                    fmt::format("is {}, but bf16.enabled selects {}; remove param_dtype", parameters.value, dtype));
  }
  section->not_acted_on({"buffer_dtype", "keep_in_fp32_modules"}, "auto",
                        "rotary tables are in fp32, and all parameters have the same dtype");
  section->finish();
}

void read_communication(ObjectReader& root, DsConfig& config) {
  root.read("communication_data_type", config.communication_data_type, Auto::kRefused, {"fp32", "bf16"});
  root.only("prescale_gradients", false, "set it to false");
  root.only("gradient_predivide_factor", 1.0, "set it to 1");
  root.only("gradient_allreduce_op", "mean", "set it to \"mean\"");
  root.only("managed_gradient_accumulation", true, "set it to true");
  root.only("sparse_gradients", false, kRemoveIt);
  root.not_acted_on({"disable_allgather"}, false, kOneLayerAtATime);
  root.not_acted_on({"seq_parallel_communication_data_type"}, "auto",
                    "attention heads are exchanged in the model's dtype");
  root.read("sequence_parallel_size", config.sequence_parallel_size, Auto::kRefused, 1);
}

void read_fp8(ObjectReader& root, Fp8Section& fp8) {
  auto section = root.section("fp8");
  if (!section) return;
  fp8.present = true;
  section->read("enabled", fp8.enabled, Auto::kRefused);
  section->read("recipe", fp8.recipe, Auto::kRefused, {"tensorwise", "rowwise"});
  section->read("format", fp8.format, Auto::kRefused, {"hybrid", "e4m3"});
  section->read("fast_accumulation", fp8.fast_accumulation, Auto::kRefused, {"none", "forward", "all"});
  section->read("cache_weights", fp8.cache_weights, Auto::kAllowed);
  section->read("filter_fqns", fp8.filter_fqns);
  section->finish();
}

void read_lora(ObjectReader& root, LoraSection& lora) {
  auto section = root.section("lora");
  if (!section) return;
  lora.present = true;
  // Key names in PEFT.
  for (const auto& [key, own] : {std::pair("lora_alpha", "alpha"),
                                 {"target_modules", "targets"},
                                 {"lora_dropout", "dropout"},
                                 {"use_rslora", "rslora"}}) {
    if (section->has(key)) section->refuse(key, fmt::format("is a PEFT key; use {} instead", section->path_of(own)));
  }
  section->read("r", lora.r, Auto::kRefused, 1);
  section->read("alpha", lora.alpha, Auto::kRefused, 0.0, kInfinity);
  section->read("targets", lora.targets, /*or_one=*/true);
  if (lora.targets.given() && lora.targets.value.empty()) {
    section->refuse("targets", "is empty; list projections, or remove the key to adapt all projections");
  }
  section->read("dropout", lora.dropout, Auto::kRefused, 0.0, 1.0);
  section->read("rslora", lora.rslora, Auto::kRefused);
  section->read("load_in_8bit", lora.load_in_8bit, Auto::kRefused);
  section->read("load_in_4bit", lora.load_in_4bit, Auto::kRefused);
  section->only("bnb_4bit_quant_type", "nf4", kRemoveIt);
  section->only("bnb_4bit_use_double_quant", true, kRemoveIt);
  // PEFT methods that change the computation.
  for (const char* key : {"use_dora", "use_qalora", "lora_bias"}) section->only(key, false, kRemoveIt);
  for (const char* key : {"modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform"}) {
    section->only(key, nullptr, kRemoveIt);
  }
  section->only("bias", "none", kRemoveIt);
  section->only("init_lora_weights", true, kRemoveIt);
  section->finish();
}

void refuse_other_methods(ObjectReader& root) {
  root.only("data_parallel_size", nullptr,
            "remove it; mpzero computes it as the number of ranks / sequence_parallel_size");
  root.only("expert_parallel", nullptr,
            kRemoveIt + ": mpzero does not support mixture-of-experts (MoE) models (docs/limits.md)");
  root.only("sparse_attention", nullptr, kRemoveIt);
  root.only("compression_training", nullptr, kRemoveIt);
  root.only("weight_quantization", nullptr, kRemoveIt);
  root.only("graph_harvesting", false, kRemoveIt);
  root.only("tensor_parallel", nullptr, kRemoveIt + ": mpzero does not split layers between GPUs (docs/limits.md)");
  for (const char* method : {"elasticity", "data_efficiency", "curriculum_learning", "progressive_layer_drop",
                             "eigenvalue", "quantize_training", "hybrid_engine", "autotuning"}) {
    root.refuse_enabled(method, kRemoveIt);
  }
}

// Monitors and profilers cause a warning if enabled.
void read_observers(ObjectReader& root, NotActedOn& not_acted_on) {
  struct Observer {
    const char* section;
    const std::string& what_happens_instead;
  };
  for (const Observer& observer :
       {Observer{"tensorboard", kMonitors}, Observer{"csv_monitor", kMonitors}, Observer{"wandb", kMonitors},
        Observer{"comet", kMonitors}, Observer{"flops_profiler", kTimings}, Observer{"comms_logger", kTimings}}) {
    root.harmless({observer.section});  // its other keys are not checked
    auto section = root.section(observer.section);
    if (!section) continue;
    Setting<bool> enabled{false};
    section->read("enabled", enabled, Auto::kAllowed);
    if (enabled.value) not_acted_on.add(root.path_of(observer.section), observer.what_happens_instead);
  }
  root.harmless({"timers"});
  root.not_acted_on({"memory_breakdown"}, false, kTimings);
  root.not_acted_on({"dump_state", "disable_python_gc", "compile"}, false, kNoPython);
  root.not_acted_on({"log_level"}, "auto", kNoPython);
}

void read_checkpoint_and_memory(ObjectReader& root, Setting<bool>& cpu_checkpointing) {
  if (auto section = root.section("checkpoint")) {
    section->harmless({"tag_validation", "checkpoint_serialization"});
    section->not_acted_on({"load_universal", "use_node_local_storage"}, false, kCheckpoints);
    section->not_acted_on({"writer", "parallel_write"}, json::object(), kCheckpoints);
    section->finish();
  }
  root.not_acted_on({"nebula", "datastates_ckpt"}, false, kCheckpoints);
  if (auto section = root.section("activation_checkpointing")) {
    section->read("cpu_checkpointing", cpu_checkpointing, Auto::kAllowed);
    section->not_acted_on({"partition_activations", "contiguous_memory_optimization", "synchronize_checkpoint_boundary",
                           "profile", "number_checkpoints"},
                          false, "use --recompute for activation checkpointing");
    section->finish();
  }
  root.not_acted_on({"aio"}, json::object(), "this setting affects only NVMe offload");
  root.not_acted_on({"pipeline"}, json::object(), "mpzero does not support pipeline parallelism");
  root.not_acted_on({"dataloader_drop_last"}, true, "leftover sequences carry over to the next epoch");
  root.harmless({"vocabulary_size", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
                 "use_data_before_expert_parallelism"});
}

DsConfig read_document(const json& document, const std::string& path, NotActedOn& not_acted_on) {
  DsConfig config;
  config.path = path;
  ObjectReader root(document, "", path, not_acted_on);
  root.read("train_batch_size", config.train_batch_size, Auto::kAllowed, 1);
  root.read("train_micro_batch_size_per_gpu", config.train_micro_batch_size_per_gpu, Auto::kAllowed, 1);
  root.read("gradient_accumulation_steps", config.gradient_accumulation_steps, Auto::kAllowed, 1);
  root.read("freeze", config.freeze);
  root.read("gradient_clipping", config.gradient_clipping, Auto::kAllowed, 0.0, kInfinity);
  root.read("steps_per_print", config.steps_per_print, Auto::kRefused, 1);
  root.read("wall_clock_breakdown", config.wall_clock_breakdown, Auto::kRefused);
  read_communication(root, config);
  read_precision(root, config, not_acted_on);
  read_data_types(root, config);
  read_fp8(root, config.fp8);
  read_lora(root, config.lora);
  read_optimizer(root, config.optimizer);
  read_scheduler(root, config.scheduler);
  read_zero(root, config.zero);
  refuse_other_methods(root);
  read_observers(root, not_acted_on);
  read_checkpoint_and_memory(root, config.cpu_checkpointing);
  root.finish();
  not_acted_on.refuse_problems(path);
  config.warnings = not_acted_on.lines(path);
  return config;
}

}  // namespace

DsConfig parse_ds_config(const std::string& text, const std::string& path) {
  const json document = parse_user_json(text, path, kConfigurationLimits);
  if (!document.is_object()) throw_user_error("{} must be a JSON object {{...}}, not {}.", path, document.type_name());
  NotActedOn not_acted_on;
  DsConfig config = read_document(document, path, not_acted_on);
  config.json = text;
  return config;
}

nlohmann::ordered_json ds_config_keys() {
  NotActedOn keys;
  // The two documents contain every section and cover the keys of all optimizers and schedules.
  read_document(json::parse(R"({"bf16": {}, "fp16": {}, "data_types": {}, "fp8": {}, "lora": {},
      "optimizer": {"type": "AdamW", "params": {}}, "scheduler": {"type": "WarmupDecayLR", "params": {}},
      "zero_optimization": {"offload_optimizer": {}, "offload_param": {}}, "tensorboard": {}, "csv_monitor": {},
      "wandb": {}, "comet": {}, "flops_profiler": {}, "comms_logger": {}, "checkpoint": {},
      "activation_checkpointing": {}})"),
                "", keys);
  read_document(json::parse(R"({"bfloat16": {}, "optimizer": {"type": "Adam", "params": {}},
      "scheduler": {"type": "WarmupCosineLR", "params": {}}})"),
                "", keys);
  return keys.accepted;
}

DsConfig read_ds_config(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_json_text(path, kConfigurationLimits);
  if (!text)
    throw_user_error("{} cannot be read; --deepspeed_config must be the path to a ds_config.json.", path.string());
  return parse_ds_config(*text, path.string());
}

}  // namespace mpzero::io
