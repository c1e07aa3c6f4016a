#include "app/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>

#include "app/training_flags.hpp"
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
        if (flag.boolean && argument == "--" + flag.name) return true;
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
    for (const Flag& flag : group.flags) known.push_back(flag.name);
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
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  const std::vector<FlagGroup> groups = training_flags();
  po::options_description options = describe(groups);
  options.add_options()(kIgnoredFlag, po::value<std::string>());

  CommandLine line;
  std::vector<std::string> seen;
  for (const po::option& option : parse(normalize(arguments, groups), options).options) {
    if (option.unregistered || option.position_key >= 0) refuse_unknown(option.original_tokens.front(), groups);
    if (option.original_tokens.size() > 1 && option.original_tokens[1].rfind("--", 0) == 0) {
      throw_user_error("--{} needs a value; give one or leave the flag out.", option.string_key);
    }
    if (option.string_key == kIgnoredFlag) continue;
    if (std::find(seen.begin(), seen.end(), option.string_key) != seen.end()) {
      throw_user_error("--{} stands there twice; keep one of the two.", option.string_key);
    }
    seen.push_back(option.string_key);
    if (option.string_key == "help") line.help = true;
    for (const FlagGroup& group : groups) {
      for (const Flag& flag : group.flags) {
        if (flag.name == option.string_key) flag.set(line, flag.name, option.value.front());
      }
    }
  }
  check_contradictions(line);
  return line;
}

std::string command_line_help() {
  std::ostringstream text;
  text << "Usage: mpzero train --train_data FILE [--flag value | --flag=value ...]\n" << describe(training_flags());
  return text.str();
}

}  // namespace mpzero
