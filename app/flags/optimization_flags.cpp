#include <cmath>

#include "app/flags/training_flags.hpp"
#include "base/command_line/arguments.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

bool has_optimizer(const io::DsConfig& file) { return file.optimizer.present; }
bool is_given(const io::DsConfig& file) { return file.given(); }

// One of the two betas, which ds_config.json sets with a single key.
io::Setting<double> beta(const io::DsConfig& file, double value) {
  io::Setting<double> setting(value);
  setting.source = file.optimizer.betas.source;
  return setting;
}

template <auto member>
inline constexpr Field<double> of_optimizer = field<&Settings::optimizer, member>;

FileKey optimizer_key(const std::string& name, FileKey::Reader<double> read) {
  return {.name = "optimizer.params." + name, .read = read, .has_section = has_optimizer};
}

Recorded optimizer_setting(const std::string& label, const std::string& key) {
  return {.section = Recorded::Section::kOptimizer, .label = label, .key = key};
}

void read_warmup_ratio(CommandLine& line, const std::string& flag, const std::string& text) {
  const double ratio = parse_real(flag, text, 0.0, 1.0);
  if (line.warmup_ratio && *line.warmup_ratio != ratio) {
    throw_user_error("--warmup_steps {} and --warmup_ratio {} both set the warm-up; keep one of the two.",
                     *line.warmup_ratio, ratio);
  }
  line.warmup_ratio = ratio;
  if (flag != "warmup_ratio") line.given["warmup_ratio"] = flag;
}

// Parses a number of steps or, if the value is below 1, a fraction of all steps (as in transformers 5).
void read_warmup_steps(CommandLine& line, const std::string& flag, const std::string& text) {
  const auto number = parse_number<double>(flag, text, "a number of steps, or a fraction of all steps between 0 and 1");
  if (number > 0 && number < 1) {
    read_warmup_ratio(line, flag, text);
  } else if (number >= 0 && number < 1e15 && number == std::floor(number)) {
    line.warmup_steps = static_cast<int64_t>(number);  // accepts "10.0"
  } else {
    line.warmup_steps = parse_integer(flag, text, 0);
  }
}

template <typename T>
std::string show_number(const std::optional<T>& number) {
  return number ? fmt::to_string(*number) : std::string();
}

std::vector<Flag> batch_flags() {
  return {{.name = "train_batch_size",
           .value = Integer{.field = field<&Settings::train_batch_size>, .minimum = 1},
           .help = "global batch size: sequences per optimizer step over all ranks",
           .unit = "SEQUENCES",
           .default_text = "micro-batch x accumulation x ranks",
           .file = FileKey{.name = "train_batch_size",
                           .read = [](const io::DsConfig& file) { return file.train_batch_size; }}},
          {.name = "train_micro_batch_size_per_gpu",
           .value = Integer{.field = field<&Settings::micro_batch_size>, .minimum = 1},
           .help = "micro-batch size: sequences per forward pass on each rank",
           .unit = "SEQUENCES",
           .file = FileKey{.name = "train_micro_batch_size_per_gpu",
                           .read = [](const io::DsConfig& file) { return file.train_micro_batch_size_per_gpu; }},
           .trainer = TrainersFlag{.name = "per_device_train_batch_size", .default_value = "8"},
           .recorded = Recorded{.section = Recorded::Section::kBatch, .label = "micro-batch"}},
          {.name = "gradient_accumulation_steps",
           .value = Integer{.field = field<&Settings::gradient_accumulation_steps>, .minimum = 1},
           .help = "micro-batches per optimizer step on each rank",
           .file = FileKey{.name = "gradient_accumulation_steps",
                           .read = [](const io::DsConfig& file) { return file.gradient_accumulation_steps; }},
           .trainer = TrainersFlag{},
           .recorded = Recorded{.section = Recorded::Section::kBatch, .label = "accumulation"}}};
}

std::vector<Flag> lora_flags() {
  return {
      {.name = "lora_r",
       .value = Integer{.field = field<&Settings::lora, &LoraSettings::r>, .minimum = 1},
       .help = "rank of the LoRA adapters to train; all other weights are frozen",
       .default_text = "no adapters",
       .file = FileKey{.name = "lora.r", .read = [](const io::DsConfig& file) { return file.lora.r; }}},
      {.name = "lora_alpha",
       .value = Real{.field = field<&Settings::lora, &LoraSettings::alpha>, .may_be_minimum = false},
       .help = "LoRA alpha: adapter outputs are scaled by alpha / r",
       .default_text = "r",
       .file = FileKey{.name = "lora.alpha", .read = [](const io::DsConfig& file) { return file.lora.alpha; }}},
      {.name = "lora_target_modules",
       .value = Names{.field = field<&Settings::lora, &LoraSettings::targets>, .remark = "; example: q_proj,v_proj"},
       .help = "names of the projections to adapt, e.g. q_proj,v_proj",
       .default_text = "all-linear: all projections of the decoder layers",
       .file = FileKey{.name = "lora.targets", .read = [](const io::DsConfig& file) { return file.lora.targets; }}},
      {.name = "lora_dropout",
       .value = Real{.field = field<&Settings::lora, &LoraSettings::dropout>, .limit = 1},
       .help = "dropout probability for the adapter inputs",
       .default_text = "0",
       .file = FileKey{.name = "lora.dropout", .read = [](const io::DsConfig& file) { return file.lora.dropout; }}},
      {.name = "use_rslora",
       .value = Boolean{field<&Settings::lora, &LoraSettings::rslora>},
       .help = "rank-stabilized LoRA: scale adapter outputs by alpha / sqrt(r) instead of alpha / r",
       .default_text = "false",
       .file = FileKey{.name = "lora.rslora", .read = [](const io::DsConfig& file) { return file.lora.rslora; }}},
      {.name = "load_in_8bit",
       .value = Boolean{field<&Settings::lora, &LoraSettings::load_in_8bit>},
       .help = "store the frozen weight matrices of decoder layers in int8",
       .file = FileKey{.name = "lora.load_in_8bit",
                       .read = [](const io::DsConfig& file) { return file.lora.load_in_8bit; }}},
      {.name = "load_in_4bit",
       .value = Boolean{field<&Settings::lora, &LoraSettings::load_in_4bit>},
       .help = "store the frozen weight matrices of decoder layers in NF4 with double quantization (QLoRA)",
       .file = FileKey{.name = "lora.load_in_4bit",
                       .read = [](const io::DsConfig& file) { return file.lora.load_in_4bit; }}}};
}

std::vector<Flag> adamw_flags() {
  return {
      {.name = "learning_rate",
       .value = Real{.field = of_optimizer<&OptimizerConfig::lr>},
       .help = "peak learning rate of AdamW",
       .file = optimizer_key("lr", [](const io::DsConfig& file) { return file.optimizer.lr; }),
       .trainer = TrainersFlag{.default_value = "5e-05"},
       .recorded = optimizer_setting("learning rate", "lr")},
      {.name = "beta1",
       .value = Real{.field = of_optimizer<&OptimizerConfig::beta1>, .limit = 1},
       .help = "AdamW's beta1: exponential decay rate of the first moment",
       .file = optimizer_key("betas[0]",
                             [](const io::DsConfig& file) { return beta(file, file.optimizer.betas.value.first); }),
       .trainer = TrainersFlag{.name = "adam_beta1"},
       .recorded = optimizer_setting("beta1", "beta1")},
      {.name = "beta2",
       .value = Real{.field = of_optimizer<&OptimizerConfig::beta2>, .limit = 1},
       .help = "AdamW's beta2: exponential decay rate of the second moment",
       .file = optimizer_key("betas[1]",
                             [](const io::DsConfig& file) { return beta(file, file.optimizer.betas.value.second); }),
       .trainer = TrainersFlag{.name = "adam_beta2", .default_value = "0.999"},
       .recorded = optimizer_setting("beta2", "beta2")},
      {.name = "adam_epsilon",
       .value = Real{.field = of_optimizer<&OptimizerConfig::eps>},
       .help = "AdamW's epsilon: term added to the denominator for numerical stability",
       .file = optimizer_key("eps", [](const io::DsConfig& file) { return file.optimizer.eps; }),
       .trainer = TrainersFlag{},
       .recorded = optimizer_setting("eps", "eps")},
      {.name = "weight_decay",
       .value = Real{.field = of_optimizer<&OptimizerConfig::weight_decay>},
       .help = "AdamW's decoupled weight decay coefficient",
       .file = optimizer_key("weight_decay", [](const io::DsConfig& file) { return file.optimizer.weight_decay; }),
       .trainer = TrainersFlag{.default_value = "0"}},
      {.name = "no_decay",
       .value = Names{.field = field<&Settings::optimizer, &OptimizerConfig::no_decay>,
                      .remark = ", which would match every parameter; example: norm,bias"},
       .help = "disable weight decay for parameters whose names contain one of these strings, e.g. norm,bias",
       .default_text = "none"},
      {.name = "freeze_parameters",
       .value = Names{.field = field<&Settings::freeze_parameters>,
                      .remark = ", which would match every parameter; example: embed_tokens,norm"},
       .help =
           "freeze parameters whose names match one of these regular expressions, e.g. embed_tokens,layers\\.[0-7]\\.",
       .unit = "REGEXES",
       .default_text = "none",
       .file = FileKey{.name = "freeze", .read = [](const io::DsConfig& file) { return file.freeze; }}},
      {.name = "grad_clip",
       .value = Real{.field = field<&Settings::gradient_clipping>},
       .help = "maximum global L2 norm of the gradients; 0 disables clipping",
       .file = FileKey{.name = "gradient_clipping",
                       .read = [](const io::DsConfig& file) { return file.gradient_clipping; },
                       .has_section = is_given},
       .trainer = TrainersFlag{.name = "max_grad_norm"}},
      {.name = "quantized_gradient_bits",
       .value = choice<int64_t>(field<&Settings::quantized_gradient_bits>, {{"8", 8}, {"4", 4}}),
       .help = "bits per gradient value sent between shard groups if zero_quantized_gradients is true",
       .unit = "BITS"}};
}

// resolve_schedule() merges these flags with the scheduler section of ds_config.json.
std::vector<Flag> schedule_flags() {
  return {
      {.name = "lr_scheduler_type",
       .value = choice(field<&Settings::lr_scheduler_type>,
                       std::vector<std::string>{"linear", "cosine", "constant", "constant_with_warmup",
                                                "warmup_stable_decay", "step_lr"}),
       .help = "the Trainer's learning rate schedule, used instead of a scheduler section: linear or cosine (decay to "
               "0 at the last step), constant, constant_with_warmup, warmup_stable_decay (constant, then cosine decay "
               "to 0 over --num_decay_steps), or step_lr (PyTorch's StepLR)",
       .default_text = "scheduler section of --deepspeed_config, or constant without that section; WarmupCosineLR "
                       "without --deepspeed_config",
       .file = FileKey{.name = "scheduler.type"},
       .trainer = TrainersFlag{.default_value = "linear"}},
      {.name = "warmup_steps",
       .value = Custom{.read = read_warmup_steps,
                       .show = [](const Settings& settings) { return show_number(settings.warmup_steps); }},
       .help = "number of warm-up steps; a value below 1 is a fraction of all steps",
       .unit = "STEPS",
       .default_text = "100; 0 with --lr_scheduler_type",
       .file = FileKey{.name = "scheduler.params.warmup_num_steps"},
       .trainer = TrainersFlag{.default_value = "0"}},
      {.name = "num_decay_steps",
       .value = Integer{.field = field<&Settings::num_decay_steps>, .minimum = 1},
       .help = "number of decay steps of warmup_stable_decay, or step_size of step_lr",
       .unit = "STEPS",
       .default_text = "10% of all steps; one epoch for step_lr"},
      {.name = "lr_gamma",
       .value = Real{.field = field<&Settings::lr_gamma>, .may_be_minimum = false},
       .help = "StepLR's gamma: multiplicative factor of step_lr, applied every --num_decay_steps steps",
       .default_text = "required by step_lr"},
      {.name = "schedule_on_resume",
       .value = choice<ScheduleOnResume>(field<&Settings::schedule_on_resume>, {{"keep", ScheduleOnResume::kKeep},
                                                                                {"rewarm", ScheduleOnResume::kRewarm},
                                                                                {"extend", ScheduleOnResume::kExtend}}),
       .help = "how to continue the learning rate schedule if its length changes on resume: keep (old schedule, then "
               "its final learning rate), rewarm (warm up from the old learning rate, then decay over the remaining "
               "steps), or extend (new schedule, as if used since step 1)",
       .default_text = "keep, or rewarm if the checkpoint's schedule ends near 0",
       .recorded = Recorded{.section = Recorded::Section::kSchedule, .key = "schedule_on_resume"}},
      {.name = "warmup_ratio",
       .value = Custom{.read = read_warmup_ratio,
                       .show = [](const Settings& settings) { return show_number(settings.warmup_ratio); }},
       .help = "warm-up steps as a fraction of all steps, rounded up",
       .unit = "X",
       .default_text = "set by --warmup_steps",
       .trainer = TrainersFlag{}}};
}

}  // namespace

FlagGroup optimization_flags() {
  FlagGroup group{
      "Batch and optimization (must match --deepspeed_config if both set a value)",
      {{.name = "deepspeed_config",
        .value = Text{field<&Settings::deepspeed_config>},
        .help = "DeepSpeed's ds_config.json",
        .unit = "FILE",
        .default_text = "none: ZeRO stage 2 with optimizer offload to host memory, and the defaults listed here"},
       {.name = "deepspeed_config_yields",
        .value = Boolean{field<&Settings::deepspeed_config_yields>},
        .help = "let flags override --deepspeed_config; the launch scripts set this flag if they pass their default "
                "ds_config.json"}}};
  for (const std::vector<Flag>& flags : {batch_flags(), lora_flags(), adamw_flags(), schedule_flags()}) {
    group.flags.insert(group.flags.end(), flags.begin(), flags.end());
  }
  return group;
}

}  // namespace mpzero
