#include "app/flags/training_flags.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <system_error>

#include "base/error.hpp"

namespace mpzero {
namespace {

using Setter = Flag::Setter;

template <typename T>
T parse_number(const std::string& flag, const std::string& value, const char* wanted) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc::result_out_of_range)
    throw_user_error("--{} {} is out of range; give {}.", flag, value, wanted);
  if (error != std::errc() || end != value.data() + value.size()) {
    throw_user_error("--{} must be {}, not \"{}\".", flag, wanted, value);
  }
  return number;
}

Setter text(std::optional<std::string> CommandLine::*field) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    if (value.empty()) throw_user_error("--{} needs a value; give one or leave the flag out.", flag);
    line.*field = value;
  };
}

Setter choice(std::optional<std::string> CommandLine::*field, const std::vector<std::string>& choices) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
      throw_user_error("--{} must be one of {}, not \"{}\".", flag, fmt::join(choices, ", "), value);
    }
    line.*field = value;
  };
}

// In the words of the Hugging Face Trainer's parser, in any case.
bool parse_boolean(const std::string& flag, const std::string& value) {
  std::string word = value;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is_one_of({"true", "t", "yes", "y", "1"})) return true;
  if (is_one_of({"false", "f", "no", "n", "0"})) return false;
  throw_user_error("--{} must be true or false, not \"{}\".", flag, value);
}

Setter boolean(std::optional<bool> CommandLine::*field) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    line.*field = parse_boolean(flag, value);
  };
}

int64_t parse_integer(const std::string& flag, const std::string& value, int64_t minimum) {
  const auto number = parse_number<int64_t>(flag, value, "a whole number");
  if (number < minimum) throw_user_error("--{} {} is too small; it must be {} or more.", flag, value, minimum);
  return number;
}

Setter integer(std::optional<int64_t> CommandLine::*field, int64_t minimum) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    line.*field = parse_integer(flag, value, minimum);
  };
}

double parse_real(const std::string& flag, const std::string& value, double minimum, double limit) {
  const auto number = parse_number<double>(flag, value, "a number");
  if (!std::isfinite(number) || number < minimum || number >= limit) {
    throw_user_error("--{} {} is out of range; it must be {} or more{}.", flag, value, minimum,
                     std::isinf(limit) ? std::string(" and finite") : fmt::format(" and less than {}", limit));
  }
  return number;
}

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Setter real(std::optional<double> CommandLine::*field, double minimum, double limit = kNoLimit) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    line.*field = parse_real(flag, value, minimum, limit);
  };
}

// More than 0.
Setter positive_real(std::optional<double> CommandLine::*field) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    const double number = parse_real(flag, value, 0.0, kNoLimit);
    if (number == 0.0) throw_user_error("--{} {} is out of range; it must be more than 0.", flag, value);
    line.*field = number;
  };
}

Setter warmup_ratio() {
  return [](CommandLine& line, const std::string& flag, const std::string& value) {
    const double ratio = parse_real(flag, value, 0.0, 1.0);
    if (line.warmup_ratio && *line.warmup_ratio != ratio) {
      throw_user_error("--warmup_steps and --warmup_ratio say {} and {}; keep one of the two.", *line.warmup_ratio,
                       ratio);
    }
    line.warmup_ratio = ratio;
    if (flag != "warmup_ratio") line.other_names["warmup_ratio"] = flag;
  };
}

// Steps, or, as in the Trainer of transformers 5, below 1 a share of all steps.
Setter warmup_steps() {
  return [](CommandLine& line, const std::string& flag, const std::string& value) {
    const auto number = parse_number<double>(flag, value, "a number of steps, or a share of all steps below 1");
    if (number > 0 && number < 1) {
      warmup_ratio()(line, flag, value);
    } else if (number >= 0 && number < 1e15 && number == std::floor(number)) {
      line.warmup_steps = static_cast<int64_t>(number);  // "10.0", too
    } else {
      line.warmup_steps = parse_integer(flag, value, 0);
    }
  };
}

// "5-7", or "5" for that step alone.
Setter step_range(std::optional<StepRange> CommandLine::*field) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    const size_t dash = value.find('-');
    const auto step = [&](const std::string& word) {
      int64_t number = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
      if (error != std::errc() || end != word.data() + word.size() || number < 1) {
        throw_user_error("--{} must be the first and the last step, counted from 1, as in 5-7, not \"{}\".", flag,
                         value);
      }
      return number;
    };
    StepRange range{.first = step(value.substr(0, dash)), .last = 0};
    range.last = dash == std::string::npos ? range.first : step(value.substr(dash + 1));
    if (range.last < range.first) {
      throw_user_error("--{} {} ends before it begins; did you mean {}-{}?", flag, value, range.last, range.first);
    }
    line.*field = range;
  };
}

Setter model_integer(std::optional<int64_t> ModelOverrides::*field) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    line.model_overrides.*field = parse_integer(flag, value, 1);
  };
}

Setter model_real(std::optional<double> ModelOverrides::*field) {
  return [=](CommandLine& line, const std::string& flag, const std::string& value) {
    const double number = parse_real(flag, value, 0.0, kNoLimit);
    if (number == 0.0) throw_user_error("--{} {} is out of range; it must be more than 0.", flag, value);
    line.model_overrides.*field = number;
  };
}

Setter checkpoint_format() {
  return [](CommandLine& line, const std::string& flag, const std::string& value) {
    if (value != "hdf5" && value != "deepspeed") {
      throw_user_error("--{} must be hdf5 or deepspeed, not \"{}\".", flag, value);
    }
    line.checkpoint_format = value;
  };
}

FlagGroup model_flags() {
  return {
      "Model",
      {
          {"model_type", "NAME", "a preset of configs/models; also names the checkpoints (default: qwen3_0_6b)",
           text(&CommandLine::model_type)},
          {"model_config", "FILE", "a Hugging Face config.json instead of a preset", text(&CommandLine::model_config)},
          {"init_from", "DIR",
           "folder of Hugging Face safetensors to start from; its config.json is the model where no other is named "
           "(default: random weights)",
           text(&CommandLine::init_from)},
          {"bf16", "BOOL", "bf16 weights and activations with fp32 master weights; false: fp32 (default: true)",
           boolean(&CommandLine::bf16), true},
          {"recompute", "WHAT",
           "what a layer does not keep for its backward but computes again: none; selective: what is cheap; full: all "
           "but its input; auto: as little as the GPU's memory asks for, on the CPU nothing (default: auto)",
           choice(&CommandLine::recompute, {"none", "selective", "full", "auto"})},
          {"gradient_checkpointing", "BOOL",
           "as the Trainer has it: true is --recompute full, false --recompute none (default: as --recompute says)",
           boolean(&CommandLine::gradient_checkpointing), true},
          {"deterministic", "BOOL",
           "repeat bit for bit on the GPU too, with slower attention; the CPU always does (default: false)",
           boolean(&CommandLine::deterministic), true},
      }};
}

FlagGroup override_flags() {
  const std::string from_model = "(default: the model's)";
  return {"Model fields that replace those of the preset or config.json",
          {
              {"vocab_size", "N", "tokens in the vocabulary " + from_model, model_integer(&ModelOverrides::vocab_size)},
              {"hidden_size", "N", from_model, model_integer(&ModelOverrides::hidden_size)},
              {"intermediate_size", "N", from_model, model_integer(&ModelOverrides::intermediate_size)},
              {"num_hidden_layers", "N", from_model, model_integer(&ModelOverrides::num_hidden_layers)},
              {"num_attention_heads", "N", from_model, model_integer(&ModelOverrides::num_attention_heads)},
              {"num_key_value_heads", "N", from_model, model_integer(&ModelOverrides::num_key_value_heads)},
              {"head_dim", "N", from_model, model_integer(&ModelOverrides::head_dim)},
              {"max_position_embeddings", "N", from_model, model_integer(&ModelOverrides::max_position_embeddings)},
              {"rms_norm_eps", "X", from_model, model_real(&ModelOverrides::rms_norm_eps)},
              {"rope_theta", "X", from_model, model_real(&ModelOverrides::rope_theta)},
          }};
}

FlagGroup data_flags() {
  return {"Data",
          {
              {"train_data", "FILE", "token file to train on, made by app/prepare_data.py (required)",
               text(&CommandLine::train_data)},
              {"validation_data", "FILE", "token file to validate on (default: no validation)",
               text(&CommandLine::validation_data)},
              {"dataset", "NAME",
               "the text that the scripts prepare when --train_data is missing: a Hugging Face name or a path",
               text(&CommandLine::dataset)},
              {"dataset_config_name", "NAME", "the data set's configuration, e.g. en",
               text(&CommandLine::dataset_config_name)},
              {"local_dataset", "BOOL", "--dataset is a local folder or file (default: if it exists)",
               boolean(&CommandLine::local_dataset), true},
              {"tokenizer", "NAME",
               "the tokenizer that the scripts prepare with: a Hugging Face name, a path, or bytes (default: "
               "Qwen/Qwen3-0.6B)",
               text(&CommandLine::tokenizer)},
              {"seq_length", "N", "tokens in a sequence (default: 2048)", integer(&CommandLine::seq_length, 1)},
              {"shuffle", "BOOL", "another order of the windows in each epoch (default: true)",
               boolean(&CommandLine::shuffle), true},
              {"seed", "N", "of the weights and of the shuffle (default: 42)",
               [](CommandLine& line, const std::string& flag, const std::string& value) {
                 line.seed = parse_number<uint64_t>(flag, value, "a whole number, 0 or more");
               }},
          }};
}

FlagGroup optimization_flags() {
  return {"Batch and optimization; where --deepspeed_config has the value too, both must be the same",
          {
              {"deepspeed_config", "FILE",
               "ds_config.json as DeepSpeed reads it (default: none; ZeRO stage 2 with the optimizer "
               "in host memory, and the defaults given here)",
               text(&CommandLine::deepspeed_config)},
              {"train_batch_size", "N",
               "sequences in an optimizer step (default: the product of the next two and the ranks)",
               integer(&CommandLine::train_batch_size, 1)},
              {"train_micro_batch_size_per_gpu",
               "N",
               "sequences that a rank runs at once (default: 1)",
               integer(&CommandLine::train_micro_batch_size_per_gpu, 1),
               false,
               {"per_device_train_batch_size"}},
              {"gradient_accumulation_steps", "N", "micro-batches of a rank in an optimizer step (default: 1)",
               integer(&CommandLine::gradient_accumulation_steps, 1)},
              {"learning_rate", "X", "AdamW's, at the schedule's peak (default: 5e-5)",
               real(&CommandLine::learning_rate, 0.0)},
              {"beta1", "X", "(default: 0.9)", real(&CommandLine::beta1, 0.0, 1.0), false, {"adam_beta1"}},
              {"beta2", "X", "(default: 0.95)", real(&CommandLine::beta2, 0.0, 1.0), false, {"adam_beta2"}},
              {"adam_epsilon", "X", "(default: 1e-8)", real(&CommandLine::adam_epsilon, 0.0)},
              {"weight_decay", "X", "(default: 0.1)", real(&CommandLine::weight_decay, 0.0)},
              {"no_decay", "NAMES",
               "no weight decay for parameters whose names contain one of these, as in norm,bias (default: all decay)",
               text(&CommandLine::no_decay)},
              {"grad_clip",
               "X",
               "largest norm of the gradient; 0: no clipping (default: 1.0)",
               real(&CommandLine::grad_clip, 0.0),
               false,
               {"max_grad_norm"}},
              {"lr_scheduler_type", "WHAT",
               "the Trainer's schedule in place of a scheduler section: linear or cosine, both to 0 at the last step; "
               "constant; constant_with_warmup (default: without --deepspeed_config DeepSpeed's WarmupCosineLR; with "
               "it, as its scheduler section says, and without one constant)",
               choice(&CommandLine::lr_scheduler_type, {"linear", "cosine", "constant", "constant_with_warmup"})},
              {"warmup_steps", "N",
               "steps until the schedule's peak; below 1 a share of all steps (default: 100; with --lr_scheduler_type "
               "0)",
               warmup_steps()},
              {"warmup_ratio", "X", "the same as a share of all steps, rounded up (default: as --warmup_steps says)",
               warmup_ratio()},
          }};
}

FlagGroup loop_flags() {
  return {
      "Training loop",
      {
          {"max_steps", "N", "optimizer steps (default: 1000, or as --epochs says)",
           integer(&CommandLine::max_steps, 1)},
          {"epochs", "N", "passes over --train_data; with --max_steps the smaller holds (default: as --max_steps says)",
           integer(&CommandLine::epochs, 1)},
          {"num_train_epochs", "X",
           "as the Trainer counts them: so many times the whole optimizer steps in --train_data, rounded up (default: "
           "as --max_steps says)",
           positive_real(&CommandLine::num_train_epochs)},
          {"logging_freq",
           "N",
           "steps between log lines (default: 10)",
           integer(&CommandLine::logging_freq, 1),
           false,
           {"logging_steps"}},
          {"validation_freq", "N", "steps between validations; 0: never (default: 100)",
           integer(&CommandLine::validation_freq, 0)},
          {"validation_batches", "N", "micro-batches of each rank in a validation (default: 10)",
           integer(&CommandLine::validation_batches, 1)},
          {"metrics_file", "FILE", "write one JSON object a step (default: none)", text(&CommandLine::metrics_file)},
          {"device", "WHAT", "auto, cuda or cpu (default: auto)",
           choice(&CommandLine::device, {"auto", "cuda", "cpu"})},
          {"network", "WHAT",
           "what carries data between the GPUs of several nodes: efa: EFA or the run ends; socket: TCP; auto: as efa "
           "where nodes have EFA devices, else what NCCL finds (default: auto)",
           choice(&CommandLine::network, {"auto", "efa", "socket"})},
          {"grace_period", "SECONDS",
           "how long the run lives on after it is asked to stop (Slurm's KillWait, or the time of --signal before the "
           "limit): a checkpoint that would take longer is not begun; 0: not known, every stop saves (default: 0)",
           real(&CommandLine::grace_period, 0.0)},
          {"stuck_after", "SECONDS",
           "a run in which nothing moves on for so long ends with a report of the rank that holds it up; so does one "
           "whose "
           "nodes cannot be connected in this time. Three times as long while it is set up, in its first step and in "
           "checkpoints; 0: never (default: 600)",
           real(&CommandLine::stuck_after, 0.0)},
          {"profile_steps", "FIRST-LAST", "take a trace of these steps, for https://ui.perfetto.dev (default: none)",
           step_range(&CommandLine::profile_steps)},
          {"profile_ranks", "WHICH", "the ranks that take it: 0 or all (default: 0)",
           choice(&CommandLine::profile_ranks, {"0", "all"})},
          {"profile_dir", "DIR", "where the trace goes (default: the folder of --metrics_file, else --checkpoint_dir)",
           text(&CommandLine::profile_dir)},
      }};
}

FlagGroup checkpoint_flags() {
  return {
      "Checkpoints",
      {
          {"checkpoint_dir", "DIR", "(default: checkpoints)", text(&CommandLine::checkpoint_dir)},
          {"checkpoint_freq",
           "N",
           "steps between checkpoints; 0: only at the end (default: 500)",
           integer(&CommandLine::checkpoint_freq, 0),
           false,
           {"save_steps"}},
          {"save_strategy", "WHAT",
           "as the Trainer has it: steps: as --checkpoint_freq says, and at the end; epoch: whenever --train_data has "
           "been seen, and at the end; no: never, as --checkpoint_freq 0 --save_final=false (default: steps)",
           choice(&CommandLine::save_strategy, {"no", "steps", "epoch"})},
          {"keep_last",
           "N",
           "whole checkpoints of this run to keep, those saved last; 0: all (default: 0)",
           integer(&CommandLine::keep_last, 0),
           false,
           {"save_total_limit"}},
          {"save_final", "BOOL",
           "save the state after the last step; a run that is stopped before it saves all the same (default: true)",
           boolean(&CommandLine::save_final), true},
          {"async_save", "BOOL",
           "write a copy of the training state behind the training, where host memory has room for it (default: true)",
           boolean(&CommandLine::async_save), true},
          {"checkpoint_format", "WHAT",
           "hdf5, or deepspeed: files that DeepSpeed and its zero_to_fp32.py read (default: hdf5)",
           checkpoint_format()},
          {"resume_from_checkpoint", "DIR",
           "a checkpoint folder, or none: start anew (default: go on from --checkpoint_dir if it holds a checkpoint, "
           "none with --overwrite)",
           text(&CommandLine::resume_from_checkpoint)},
          {"allow_changed", "KEYS",
           "keys of the model that may differ from the checkpoint's, of rope_theta, rope_scaling and rms_norm_eps, as "
           "when a context is extended (default: none)",
           text(&CommandLine::allow_changed)},
          {"overwrite", "BOOL",
           "move what another run has left in --checkpoint_dir into a folder old-<n> there; without it a new run does "
           "not "
           "start among another's checkpoints (default: false)",
           boolean(&CommandLine::overwrite), true},
          {"resume_strict", "BOOL",
           "stop where the newest checkpoint is damaged instead of going on from the one before (default: false)",
           boolean(&CommandLine::resume_strict), true},
      }};
}

}  // namespace

bool Flag::is_named(const std::string& word) const {
  return word == name || std::find(aliases.begin(), aliases.end(), word) != aliases.end();
}

std::vector<FlagGroup> training_flags() {
  return {model_flags(), override_flags(), data_flags(), optimization_flags(), loop_flags(), checkpoint_flags()};
}

}  // namespace mpzero
