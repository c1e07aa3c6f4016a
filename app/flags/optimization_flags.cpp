#include <cmath>

#include "app/flags/numbers.hpp"
#include "app/flags/training_flags.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

bool has_optimizer(const io::DsConfig& file) { return file.optimizer.present; }
bool is_given(const io::DsConfig& file) { return file.given(); }

// One of the two betas, which the file gives together.
io::Setting<double> beta(const io::DsConfig& file, double value) {
  io::Setting<double> setting(value);
  setting.source = file.optimizer.betas.source;
  return setting;
}

// A member of the optimizer, with the key of the file's section.
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
    throw_user_error("--warmup_steps and --warmup_ratio say {} and {}; keep one of the two.", *line.warmup_ratio,
                     ratio);
  }
  line.warmup_ratio = ratio;
  if (flag != "warmup_ratio") line.given["warmup_ratio"] = flag;
}

// Steps, or, as in the Trainer of transformers 5, below 1 a share of all steps.
void read_warmup_steps(CommandLine& line, const std::string& flag, const std::string& text) {
  const auto number = parse_number<double>(flag, text, "a number of steps, or a share of all steps below 1");
  if (number > 0 && number < 1) {
    read_warmup_ratio(line, flag, text);
  } else if (number >= 0 && number < 1e15 && number == std::floor(number)) {
    line.warmup_steps = static_cast<int64_t>(number);  // "10.0", too
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
           .help = "sequences in an optimizer step",
           .unit = "SEQUENCES",
           .default_text = "the product of the next two and the ranks",
           .file = FileKey{.name = "train_batch_size",
                           .read = [](const io::DsConfig& file) { return file.train_batch_size; }}},
          {.name = "train_micro_batch_size_per_gpu",
           .value = Integer{.field = field<&Settings::micro_batch_size>, .minimum = 1},
           .help = "sequences that a rank runs at once",
           .unit = "SEQUENCES",
           .file = FileKey{.name = "train_micro_batch_size_per_gpu",
                           .read = [](const io::DsConfig& file) { return file.train_micro_batch_size_per_gpu; }},
           .trainer = TrainersFlag{.name = "per_device_train_batch_size", .default_value = "8"},
           .recorded = Recorded{.section = Recorded::Section::kBatch, .label = "micro-batch"}},
          {.name = "gradient_accumulation_steps",
           .value = Integer{.field = field<&Settings::gradient_accumulation_steps>, .minimum = 1},
           .help = "micro-batches of a rank in an optimizer step",
           .file = FileKey{.name = "gradient_accumulation_steps",
                           .read = [](const io::DsConfig& file) { return file.gradient_accumulation_steps; }},
           .trainer = TrainersFlag{},
           .recorded = Recorded{.section = Recorded::Section::kBatch, .label = "accumulation"}}};
}

std::vector<Flag> lora_flags() {
  return {
      {.name = "lora_r",
       .value = Integer{.field = field<&Settings::lora, &LoraSettings::r>, .minimum = 1},
       .help = "rank of low-rank adapters (LoRA), which are trained in place of the weights",
       .default_text = "no adapters",
       .file = FileKey{.name = "lora.r", .read = [](const io::DsConfig& file) { return file.lora.r; }}},
      {.name = "lora_alpha",
       .value = Real{.field = field<&Settings::lora, &LoraSettings::alpha>, .may_be_minimum = false},
       .help = "adapters are scaled by this / r",
       .default_text = "r",
       .file = FileKey{.name = "lora.alpha", .read = [](const io::DsConfig& file) { return file.lora.alpha; }}},
      {.name = "lora_target_modules",
       .value = Names{.field = field<&Settings::lora, &LoraSettings::targets>, .remark = "; write it as q_proj,v_proj"},
       .help = "projections that get adapters, as in q_proj,v_proj",
       .default_text = "all-linear: every projection of the layers",
       .file = FileKey{.name = "lora.targets", .read = [](const io::DsConfig& file) { return file.lora.targets; }}},
      {.name = "lora_dropout",
       .value = Real{.field = field<&Settings::lora, &LoraSettings::dropout>, .limit = 1},
       .help = "dropout of the adapters' input; only 0 is supported",
       .file = FileKey{.name = "lora.dropout", .read = [](const io::DsConfig& file) { return file.lora.dropout; }}},
      {.name = "use_rslora",
       .value = Boolean{field<&Settings::lora, &LoraSettings::rslora>},
       .help = "adapters are scaled by alpha / sqrt(r)",
       .file = FileKey{.name = "lora.rslora", .read = [](const io::DsConfig& file) { return file.lora.rslora; }}}};
}

std::vector<Flag> adamw_flags() {
  return {{.name = "learning_rate",
           .value = Real{.field = of_optimizer<&OptimizerConfig::lr>},
           .help = "AdamW's, at the schedule's peak",
           .file = optimizer_key("lr", [](const io::DsConfig& file) { return file.optimizer.lr; }),
           .trainer = TrainersFlag{.default_value = "5e-05"},
           .recorded = optimizer_setting("learning rate", "lr")},
          {.name = "beta1",
           .value = Real{.field = of_optimizer<&OptimizerConfig::beta1>, .limit = 1},
           .help = "decay of AdamW's first moment",
           .file = optimizer_key("betas[0]",
                                 [](const io::DsConfig& file) { return beta(file, file.optimizer.betas.value.first); }),
           .trainer = TrainersFlag{.name = "adam_beta1"},
           .recorded = optimizer_setting("beta1", "beta1")},
          {.name = "beta2",
           .value = Real{.field = of_optimizer<&OptimizerConfig::beta2>, .limit = 1},
           .help = "decay of AdamW's second moment",
           .file = optimizer_key(
               "betas[1]", [](const io::DsConfig& file) { return beta(file, file.optimizer.betas.value.second); }),
           .trainer = TrainersFlag{.name = "adam_beta2", .default_value = "0.999"},
           .recorded = optimizer_setting("beta2", "beta2")},
          {.name = "adam_epsilon",
           .value = Real{.field = of_optimizer<&OptimizerConfig::eps>},
           .help = "added to the root of AdamW's second moment",
           .file = optimizer_key("eps", [](const io::DsConfig& file) { return file.optimizer.eps; }),
           .trainer = TrainersFlag{},
           .recorded = optimizer_setting("eps", "eps")},
          {.name = "weight_decay",
           .value = Real{.field = of_optimizer<&OptimizerConfig::weight_decay>},
           .help = "decoupled from the gradient, as AdamW has it",
           .file = optimizer_key("weight_decay", [](const io::DsConfig& file) { return file.optimizer.weight_decay; }),
           .trainer = TrainersFlag{.default_value = "0"}},
          {.name = "no_decay",
           .value = Names{.field = field<&Settings::optimizer, &OptimizerConfig::no_decay>,
                          .remark = ", which would be part of every other; write it as norm,bias"},
           .help = "no weight decay for parameters whose names contain one of these, as in norm,bias",
           .default_text = "all decay"},
          {.name = "freeze_parameters",
           .value = Names{.field = field<&Settings::freeze_parameters>,
                          .remark = ", which would match every parameter; write it as embed_tokens,norm"},
           .help = "parameters whose names one of these regular expressions matches are not trained, as in "
                   "embed_tokens,layers\\.[0-7]\\.",
           .unit = "REGEXES",
           .default_text = "all are trained",
           .file = FileKey{.name = "freeze", .read = [](const io::DsConfig& file) { return file.freeze; }}},
          {.name = "grad_clip",
           .value = Real{.field = field<&Settings::gradient_clipping>},
           .help = "largest L2 norm of the gradient over all parameters; 0: no clipping",
           .file = FileKey{.name = "gradient_clipping",
                           .read = [](const io::DsConfig& file) { return file.gradient_clipping; },
                           .has_section = is_given},
           .trainer = TrainersFlag{.name = "max_grad_norm"}},
          {.name = "quantized_gradient_bits",
           .value = choice<int64_t>(field<&Settings::quantized_gradient_bits>, {{"8", 8}, {"4", 4}}),
           .help = "bits of a gradient between nodes, where zero_quantized_gradients is true",
           .unit = "BITS"}};
}

// resolve_schedule brings these and the file's scheduler section together.
std::vector<Flag> schedule_flags() {
  return {
      {.name = "lr_scheduler_type",
       .value = choice(field<&Settings::lr_scheduler_type>,
                       std::vector<std::string>{"linear", "cosine", "constant", "constant_with_warmup",
                                                "warmup_stable_decay", "step_lr"}),
       .help = "the Trainer's schedule in place of a scheduler section: linear or cosine, both to 0 at the last "
               "step; constant; constant_with_warmup; warmup_stable_decay: constant, then a cosine to 0 in the last "
               "--num_decay_steps. step_lr: PyTorch's StepLR",
       .default_text = "without --deepspeed_config DeepSpeed's WarmupCosineLR; with it, as its scheduler section "
                       "says, and without one constant",
       .file = FileKey{.name = "scheduler.type"},
       .trainer = TrainersFlag{.default_value = "linear"}},
      {.name = "warmup_steps",
       .value = Custom{.read = read_warmup_steps,
                       .show = [](const Settings& settings) { return show_number(settings.warmup_steps); }},
       .help = "steps until the schedule's peak; below 1 a share of all steps",
       .unit = "STEPS",
       .default_text = "100; with --lr_scheduler_type 0",
       .file = FileKey{.name = "scheduler.params.warmup_num_steps"},
       .trainer = TrainersFlag{.default_value = "0"}},
      {.name = "num_decay_steps",
       .value = Integer{.field = field<&Settings::num_decay_steps>, .minimum = 1},
       .help = "steps of warmup_stable_decay's decay, as lr_scheduler_kwargs has it; StepLR's step_size",
       .unit = "STEPS",
       .default_text = "a tenth of all steps; of step_lr an epoch"},
      {.name = "lr_gamma",
       .value = Real{.field = field<&Settings::lr_gamma>, .may_be_minimum = false},
       .help = "step_lr's factor of the learning rate after each --num_decay_steps, StepLR's gamma",
       .default_text = "step_lr requires it"},
      {.name = "schedule_on_resume",
       .value = choice<ScheduleOnResume>(field<&Settings::schedule_on_resume>, {{"keep", ScheduleOnResume::kKeep},
                                                                                {"rewarm", ScheduleOnResume::kRewarm},
                                                                                {"extend", ScheduleOnResume::kExtend}}),
       .help = "where the schedule has changed since the checkpoint: keep: the checkpoint's to its end, then its "
               "last rate; rewarm: a new warm-up from the checkpoint's rate and a new decay in the remaining steps; "
               "extend: the new schedule, as if the run had begun with it",
       .default_text = "the rate does not jump: keep, or rewarm where the checkpoint's ends at almost 0",
       .recorded = Recorded{.section = Recorded::Section::kSchedule, .key = "schedule_on_resume"}},
      {.name = "warmup_ratio",
       .value = Custom{.read = read_warmup_ratio,
                       .show = [](const Settings& settings) { return show_number(settings.warmup_ratio); }},
       .help = "the same as a share of all steps, rounded up",
       .unit = "X",
       .default_text = "as --warmup_steps says",
       .trainer = TrainersFlag{}}};
}

}  // namespace

FlagGroup optimization_flags() {
  FlagGroup group{"Batch and optimization; where --deepspeed_config has the value too, both must be the same",
                  {{.name = "deepspeed_config",
                    .value = Text{field<&Settings::deepspeed_config>},
                    .help = "ds_config.json as DeepSpeed reads it",
                    .unit = "FILE",
                    .default_text = "none; ZeRO stage 2 with the optimizer in host memory, and the defaults given "
                                    "here"},
                   {.name = "deepspeed_config_yields",
                    .value = Boolean{field<&Settings::deepspeed_config_yields>},
                    .help = "flags replace the values of --deepspeed_config instead of having to be the same; the "
                            "scripts give it with a file that the user has not named"}}};
  for (const std::vector<Flag>& flags : {batch_flags(), lora_flags(), adamw_flags(), schedule_flags()}) {
    group.flags.insert(group.flags.end(), flags.begin(), flags.end());
  }
  return group;
}

}  // namespace mpzero
