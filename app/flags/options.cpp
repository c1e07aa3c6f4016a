#include "app/flags/options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/flags/training_flags.hpp"
#include "app/flags/unknown_flags.hpp"
#include "base/command_line/arguments.hpp"
#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

// Returns whether the flag requires a value. `flag`: with leading dashes.
Takes takes_of(const std::string& flag) {
  if (asks_for_help(flag)) return Takes::kNothing;
  // DeepSpeed's launcher passes --local_rank, but mpzero gets ranks from MPI.
  if (flag == "--local_rank") return Takes::kValue;
  const Flag* known = flag.starts_with("--") ? find_flag(flag.substr(2)) : nullptr;
  if (known == nullptr) return Takes::kUnknown;
  return known->alone().empty() ? Takes::kValue : Takes::kOptionalValue;
}

// Returns true if the argument is an existing path or has the form of a Hugging Face Hub name.
bool is_data_set(const std::string& argument) {
  if (argument.starts_with("-")) return false;
  std::error_code ignored;
  return std::filesystem::exists(argument, ignored) || std::count(argument.begin(), argument.end(), '/') == 1;
}

// A flag as written on the command line.
struct GivenFlag {
  std::string name;  // may be an alias
  std::string value;

  // Parses a command line that contains only this flag.
  CommandLine read(const Flag& flag) const {
    CommandLine line;
    flag.read(line, name, value);
    return line;
  }
};

// Throws UserError for a repeated flag, or two aliases with different values.
void check_repetition(const Flag& flag, const GivenFlag& first, const GivenFlag& second) {
  if (first.name == second.name) throw_user_error("--{} is given twice; keep one of the two.", first.name);
  if (first.read(flag) == second.read(flag)) return;
  throw_user_error("--{} {} and --{} {} are aliases with different values; keep one of the two.", first.name,
                   first.value, second.name, second.value);
}

// --warmup_ratio 0 is ignored if --warmup_steps is set; otherwise it means 0 steps.
void settle_warmup(CommandLine& line) {
  if (line.warmup_ratio != 0.0) return;
  line.warmup_ratio.reset();
  if (line.warmup_steps) return;
  line.warmup_steps = 0;
  line.given["warmup_steps"] = line.name_of("warmup_ratio");
}

void check_warmup(const CommandLine& line) {
  const bool has_steps = line.warmup_steps.value_or(0) > 0;
  if (has_steps && line.warmup_ratio) {
    throw_user_error("--warmup_steps {} and --warmup_ratio {} both set the warm-up; keep one of the two.",
                     *line.warmup_steps, *line.warmup_ratio);
  }
  if (line.lr_scheduler_type == "constant" && (has_steps || line.warmup_ratio)) {
    const char* const flag = has_steps ? "warmup_steps" : "warmup_ratio";
    throw_user_error(
        "--lr_scheduler_type constant has no warm-up, but --{} is set; use --lr_scheduler_type constant_with_warmup, "
        "or omit --{}.",
        flag, flag);
  }
}

void check_decay(const CommandLine& line) {
  const bool in_steps = line.lr_scheduler_type == "step_lr";
  if (line.num_decay_steps && !in_steps && line.lr_scheduler_type != "warmup_stable_decay") {
    throw_user_error(
        "--num_decay_steps {} requires --lr_scheduler_type warmup_stable_decay or step_lr; set one of the two, or omit "
        "--num_decay_steps.",
        *line.num_decay_steps);
  }
  if (line.lr_gamma && !in_steps) {
    throw_user_error("--lr_gamma {} requires --lr_scheduler_type step_lr; set this schedule, or omit --lr_gamma.",
                     *line.lr_gamma);
  }
  if (!in_steps) return;
  if (!line.lr_gamma) throw_user_error("--lr_scheduler_type step_lr requires --lr_gamma, e.g. --lr_gamma 0.7.");
  if (!line.num_decay_steps && !line.epochs && !line.num_train_epochs) {
    throw_user_error(
        "--lr_scheduler_type step_lr decays once per epoch by default, but the run length is set in steps; "
        "pass --num_train_epochs or --num_decay_steps.");
  }
}

void check_save_strategy(const CommandLine& line) {
  if (line.save_strategy == SaveStrategy::kSteps) return;
  if (line.save_strategy == SaveStrategy::kNo && line.gives("save_final") && line.save_final) {
    throw_user_error("--save_strategy no and --save_final true conflict; keep one of the two.");
  }
  if (!line.gives("checkpoint_freq") || line.checkpoint_freq == 0) return;
  throw_user_error("--save_strategy {} and --{} {} conflict; keep one of the two.",
                   line.save_strategy == SaveStrategy::kNo ? "no" : "epoch", line.name_of("checkpoint_freq"),
                   line.checkpoint_freq);
}

// Sets `recompute` from the Trainer's --gradient_checkpointing.
void settle_recompute(CommandLine& line) {
  if (!line.gradient_checkpointing) return;
  const Recomputation asked = *line.gradient_checkpointing ? Recomputation::kFull : Recomputation::kNone;
  const bool is_full = line.recompute >= Recomputation::kAttention && line.recompute != Recomputation::kAuto;
  if (line.gives("recompute") && asked == Recomputation::kFull && is_full) return;
  if (line.gives("recompute") && line.recompute != asked) {
    throw_user_error("--recompute {} and --gradient_checkpointing {} (--recompute {}) conflict; keep one of the two.",
                     flag_named("recompute").show(line), *line.gradient_checkpointing,
                     *line.gradient_checkpointing ? "full" : "none");
  }
  line.recompute = asked;
}

// As in the Trainer, true requires a checkpoint in the output folder, and false starts a new run.
void settle_resume(CommandLine& line) {
  std::string word = line.resume_from_checkpoint;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "true") line.resume_from_checkpoint = line.checkpoint_dir;
  if (word == "false") line.resume_from_checkpoint = "none";
}

// Without --dry_run, the launcher sets the number of ranks.
void check_dry_run(const CommandLine& line) {
  for (const char* flag : {"world_size", "nproc_per_node"}) {
    if (line.dry_run || !line.gives(flag)) continue;
    throw_user_error(
        "--{} {} requires --dry_run, since mpirun or srun sets the number of ranks; omit the flag, or add --dry_run.",
        flag, flag_named(flag).show(line));
  }
  if (!line.world_size || !line.nproc_per_node || *line.world_size % *line.nproc_per_node == 0) return;
  throw_user_error("--world_size {} is not a multiple of --nproc_per_node {}; change one of them.", *line.world_size,
                   *line.nproc_per_node);
}

// Prometheus may scrape the file's HOST:PORT targets from another host.
void check_metrics(const CommandLine& line) {
  const std::string& address = line.metrics_address;
  if (line.metrics_port == 0 || line.metrics_sd_dir.empty() || !(address.starts_with("127.") || address == "::1"))
    return;
  throw_user_error(
      "--metrics_sd_dir {} requires an address that Prometheus can reach, but --metrics_address {} is a loopback "
      "address; pass --metrics_address 0.0.0.0, or omit --metrics_sd_dir.",
      line.metrics_sd_dir, address);
}

void check_contradictions(const CommandLine& line) {
  const ModelOverrides& model = line.model_overrides;
  if (line.local_dataset.value_or(false) && line.dataset.empty()) {
    throw_user_error("--local_dataset true requires --dataset PATH.");
  }
  if (line.gives("seq_length") && model.max_position_embeddings && line.seq_length > *model.max_position_embeddings) {
    throw_user_error("--seq_length {} is longer than --max_position_embeddings {}; change one of them.",
                     line.seq_length, *model.max_position_embeddings);
  }
  if (model.num_attention_heads && model.num_key_value_heads &&
      *model.num_attention_heads % *model.num_key_value_heads != 0) {
    throw_user_error("--num_attention_heads {} is not a multiple of --num_key_value_heads {}; change one of them.",
                     *model.num_attention_heads, *model.num_key_value_heads);
  }
}

}  // namespace

void refuse_flag(const std::string& argument, const std::vector<std::string>& of_command, const std::string& help) {
  if (argument.ends_with(".h5")) {
    throw_user_error("\"{0}\" is not a flag; to train on a token file, pass --train_data {0}.", argument);
  }
  if (is_data_set(argument)) {
    throw_user_error(
        "\"{0}\" is not a flag; tokenize the dataset with app/prepare_data.py and pass --train_data FILE, or pass "
        "--dataset {0} to the launch scripts.",
        argument);
  }
  if (argument.rfind("--", 0) != 0) {
    throw_user_error("\"{}\" is not a flag; write --name value or --name=value.", argument);
  }
  const std::string name = argument.substr(2, argument.find('=') - 2);
  std::string spelled = name;  // as in Megatron-LM: --micro-batch-size
  std::replace(spelled.begin(), spelled.end(), '-', '_');
  if (const auto sentence = unknown_flags().find(spelled); sentence != unknown_flags().end()) {
    throw_user_error("{}", sentence->second);
  }
  std::vector<std::string> known = {"help"};
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      for (const std::string& other : flag.names()) known.push_back(other);
    }
  }
  known.insert(known.end(), of_command.begin(), of_command.end());
  if (const auto nearest = nearest_name(spelled, known)) {
    throw_user_error("--{} is not a known flag; did you mean --{}?", name, *nearest);
  }
  throw_user_error("--{} is not a known flag; {}.", name, help);
}

CommandLine parse_command_line(const std::vector<std::string>& arguments, const std::vector<std::string>& of_command,
                               const std::string& help) {
  CommandLine line;
  std::map<std::string, GivenFlag> seen;  // by flag name
  std::vector<std::string> problems;
  const auto collect = [&](const auto& check) {
    try {
      check();
    } catch (const UserError& error) {
      if (std::ranges::find(problems, error.what()) == problems.end()) problems.emplace_back(error.what());
    }
  };
  const auto read = [&](const Argument& argument) {
    if (argument.takes == Takes::kUnknown) refuse_flag(argument.text, of_command, help);
    argument.check_value();
    if (argument.flag == "--local_rank") return;
    if (argument.takes == Takes::kNothing) {
      line.help = true;
      return;
    }
    const std::string name = argument.flag.substr(2);
    const Flag& flag = flag_named(name);
    const GivenFlag given{.name = name, .value = argument.value.value_or(flag.alone())};
    flag.read(line, given.name, given.value);
    line.given.emplace(flag.name, given.name);
    const auto [first, is_new] = seen.emplace(flag.name, given);
    if (!is_new) check_repetition(flag, first->second, given);
  };
  bool follows_unknown = false;
  for (const Argument& argument : split_arguments(arguments, takes_of)) {
    // Skip the value of an unknown flag, which is not a separate error.
    const bool is_flag = argument.takes != Takes::kUnknown || argument.text.starts_with("--");
    const bool is_value = follows_unknown && !is_flag;
    follows_unknown = is_flag && argument.takes == Takes::kUnknown && !argument.value;
    if (!is_value) collect([&] { read(argument); });
  }
  settle_warmup(line);
  settle_resume(line);
  for (const auto& check :
       {check_contradictions, check_dry_run, check_metrics, check_warmup, check_decay, check_save_strategy}) {
    collect([&] { check(line); });
  }
  collect([&] { settle_recompute(line); });
  if (!problems.empty()) throw_user_error("{}", fmt::join(problems, " Also: "));
  return line;
}

bool CommandLine::gives(const std::string& flag) const { return given.contains(flag_named(flag).name); }

std::string CommandLine::name_of(const std::string& flag) const {
  const auto name = given.find(flag_named(flag).name);
  return name == given.end() ? flag : name->second;
}

}  // namespace mpzero
