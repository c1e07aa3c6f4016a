#include "app/flags/options.hpp"

#include <boost/program_options.hpp>
#include <map>
#include <sstream>

#include "app/flags/training_flags.hpp"
#include "base/error.hpp"
#include "base/nearest_name.hpp"

namespace mpzero {
namespace {

namespace po = boost::program_options;

// DeepSpeed's launcher adds --local_rank to every command; MPI says it here.
constexpr const char* kIgnoredFlag = "local_rank";

po::options_description describe(const std::vector<FlagGroup>& groups) {
  constexpr unsigned kLineLength = 110;
  constexpr unsigned kDescriptionLength = 70;
  po::options_description all("", kLineLength, kDescriptionLength);
  for (const FlagGroup& group : groups) {
    po::options_description section(group.title, kLineLength, kDescriptionLength);
    for (const Flag& flag : group.flags) {
      section.add_options()(flag.name.c_str(), po::value<std::string>()->value_name(flag.value_name),
                            flag.help.c_str());
    }
    all.add(section);
  }
  po::options_description aliases("Other names, as the Hugging Face Trainer has them", kLineLength, kDescriptionLength);
  for (const FlagGroup& group : groups) {
    for (const Flag& flag : group.flags) {
      for (const std::string& alias : flag.aliases) {
        aliases.add_options()(alias.c_str(), po::value<std::string>()->value_name(flag.value_name),
                              ("the same as --" + flag.name).c_str());
      }
    }
  }
  all.add(aliases);
  po::options_description other("Other", kLineLength, kDescriptionLength);
  other.add_options()("help", "print this; also -h");
  all.add(other);
  return all;
}

// Boost knows no option with an optional value behind a blank, so that `--bf16 false` and `--bf16` both become one
// word.
std::vector<std::string> normalize(const std::vector<std::string>& arguments, const std::vector<FlagGroup>& groups) {
  const auto is_boolean = [&](const std::string& argument) {
    for (const FlagGroup& group : groups) {
      for (const Flag& flag : group.flags) {
        if (flag.boolean && argument.starts_with("--") && flag.is_named(argument.substr(2))) return true;
      }
    }
    return false;
  };
  std::vector<std::string> joined;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_boolean(arguments[i])) {
      joined.push_back(arguments[i] == "-h" ? "--help" : arguments[i]);
    } else if (i + 1 < arguments.size() && arguments[i + 1].rfind("--", 0) != 0) {
      joined.push_back(arguments[i] + "=" + arguments[i + 1]);
      ++i;
    } else {
      joined.push_back(arguments[i] + "=true");
    }
  }
  return joined;
}

[[noreturn]] void refuse_unknown(const std::string& argument, const std::vector<FlagGroup>& groups) {
  if (argument.rfind("--", 0) != 0) {
    throw_user_error("\"{}\" is not a flag; flags are written --name value or --name=value.", argument);
  }
  const std::string name = argument.substr(2, argument.find('=') - 2);
  std::vector<std::string> known = {"help"};
  for (const FlagGroup& group : groups) {
    for (const Flag& flag : group.flags) {
      known.push_back(flag.name);
      known.insert(known.end(), flag.aliases.begin(), flag.aliases.end());
    }
  }
  if (const auto nearest = nearest_name(name, known)) {
    throw_user_error("--{} is not a known flag; did you mean --{}?", name, *nearest);
  }
  throw_user_error("--{} is not a known flag; mpzero train --help lists them all.", name);
}

po::parsed_options parse(const std::vector<std::string>& arguments, const po::options_description& options) {
  namespace style = po::command_line_style;
  const int long_flags = style::allow_long | style::long_allow_adjacent | style::long_allow_next;
  try {
    return po::command_line_parser(arguments).options(options).style(long_flags).allow_unregistered().run();
  } catch (const po::invalid_command_line_syntax& error) {
    if (error.kind() == po::invalid_syntax::extra_parameter) {
      throw_user_error("{} takes no value; leave it out.", error.get_option_name());
    }
    throw_user_error("{} needs a value; give one or leave the flag out.", error.get_option_name());
  }
}

const Flag& find_flag(const std::vector<FlagGroup>& groups, const std::string& name) {
  for (const FlagGroup& group : groups) {
    for (const Flag& flag : group.flags) {
      if (flag.is_named(name)) return flag;
    }
  }
  throw_failure("--{} is declared but belongs to no group of flags", name);
}

// One flag as it was written.
struct GivenFlag {
  std::string name;  // which may be one of the aliases
  std::string value;

  // What a command line of this flag alone says.
  CommandLine read(const Flag& flag) const {
    CommandLine line;
    flag.set(line, name, value);
    return line;
  }
};

// Refuses a flag that stands there twice, or under two names with two values.
void check_repetition(const Flag& flag, const GivenFlag& first, const GivenFlag& second) {
  if (first.name == second.name) throw_user_error("--{} stands there twice; keep one of the two.", first.name);
  if (first.read(flag) == second.read(flag)) return;
  throw_user_error("--{} {} and --{} {} contradict each other: they are two names of one setting; keep one of the two.",
                   first.name, first.value, second.name, second.value);
}

// A share of 0 says nothing beside a number of steps, and alone the same as no steps.
void settle_warmup(CommandLine& line) {
  if (line.warmup_ratio != 0.0) return;
  line.warmup_ratio.reset();
  if (line.warmup_steps) return;
  line.warmup_steps = 0;
  line.other_names["warmup_steps"] = line.name_of("warmup_ratio");
}

void check_warmup(const CommandLine& line) {
  if (line.warmup_steps.value_or(0) > 0 && line.warmup_ratio.value_or(0.0) > 0) {
    throw_user_error("--warmup_steps {} and --warmup_ratio {} both set the warm-up; keep one of the two.",
                     *line.warmup_steps, *line.warmup_ratio);
  }
  if (line.lr_scheduler_type == "constant" &&
      (line.warmup_steps.value_or(0) > 0 || line.warmup_ratio.value_or(0) > 0)) {
    throw_user_error(
        "--lr_scheduler_type constant has no warm-up, but --{} asks for one; give --lr_scheduler_type "
        "constant_with_warmup, or leave the warm-up out.",
        line.warmup_steps.value_or(0) > 0 ? "warmup_steps" : "warmup_ratio");
  }
}

void check_save_strategy(const CommandLine& line) {
  if (!line.save_strategy || *line.save_strategy == "steps") return;
  if (*line.save_strategy == "no" && line.save_final.value_or(false)) {
    throw_user_error("--save_strategy no and --save_final true contradict each other; keep one of the two.");
  }
  if (line.checkpoint_freq.value_or(0) == 0) return;
  throw_user_error("--save_strategy {} and --{} {} contradict each other; keep one of the two.", *line.save_strategy,
                   line.name_of("checkpoint_freq"), *line.checkpoint_freq);
}

void check_contradictions(const CommandLine& line) {
  const ModelOverrides& model = line.model_overrides;
  if (line.local_dataset.value_or(false) && !line.dataset) {
    throw_user_error("--local_dataset true needs --dataset with the folder or file; add it.");
  }
  if (line.seq_length && model.max_position_embeddings && *line.seq_length > *model.max_position_embeddings) {
    throw_user_error("--seq_length {} is longer than --max_position_embeddings {}; shorten the one or raise the other.",
                     *line.seq_length, *model.max_position_embeddings);
  }
  if (model.num_attention_heads && model.num_key_value_heads &&
      *model.num_attention_heads % *model.num_key_value_heads != 0) {
    throw_user_error("--num_attention_heads {} is not a multiple of --num_key_value_heads {}; change one of them.",
                     *model.num_attention_heads, *model.num_key_value_heads);
  }
  if (line.gradient_checkpointing && line.recompute &&
      *line.recompute != (*line.gradient_checkpointing ? "full" : "none")) {
    throw_user_error(
        "--recompute {} and --gradient_checkpointing {}, which is --recompute {}, contradict each other; keep one of "
        "the two.",
        *line.recompute, *line.gradient_checkpointing, *line.gradient_checkpointing ? "full" : "none");
  }
  check_warmup(line);
  check_save_strategy(line);
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  const std::vector<FlagGroup> groups = training_flags();
  po::options_description options = describe(groups);
  options.add_options()(kIgnoredFlag, po::value<std::string>());

  CommandLine line;
  std::map<std::string, GivenFlag> seen;  // by the flag's own name
  for (const po::option& option : parse(normalize(arguments, groups), options).options) {
    if (option.unregistered || option.position_key >= 0) refuse_unknown(option.original_tokens.front(), groups);
    if (option.original_tokens.size() > 1 && option.original_tokens[1].rfind("--", 0) == 0) {
      throw_user_error("--{} needs a value; give one or leave the flag out.", option.string_key);
    }
    if (option.string_key == kIgnoredFlag) continue;
    if (option.string_key == "help") {
      line.help = true;
      continue;
    }
    const GivenFlag given{.name = option.string_key, .value = option.value.front()};
    const Flag& flag = find_flag(groups, given.name);
    flag.set(line, given.name, given.value);
    const auto [first, is_new] = seen.emplace(flag.name, given);
    if (!is_new) {
      check_repetition(flag, first->second, given);
    } else if (given.name != flag.name) {
      line.other_names[flag.name] = given.name;
    }
  }
  settle_warmup(line);
  check_contradictions(line);
  return line;
}

std::string CommandLine::name_of(const std::string& flag) const {
  const auto other = other_names.find(flag);
  return other == other_names.end() ? flag : other->second;
}

std::string command_line_help() {
  std::ostringstream text;
  text << "Usage: mpzero train --train_data FILE [--flag value | --flag=value ...]\n" << describe(training_flags());
  return text.str();
}

}  // namespace mpzero
