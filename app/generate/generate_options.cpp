#include "app/generate/generate_options.hpp"

#include <algorithm>

#include "app/flags/command_flags.hpp"
#include "app/flags/numbers.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

constexpr double kHottest = 100;

std::string one_of(const char* flag, const std::string& value, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += words[i];
  }
  throw_user_error("--{} must be {}, not \"{}\".", flag, list, value);
}

std::vector<int64_t> parse_tokens(const std::string& text) {
  std::vector<int64_t> tokens;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    tokens.push_back(parse_integer("prompt_tokens", text.substr(begin, end - begin), 0));
    begin = end + 1;
  }
  return tokens;
}

std::vector<CommandFlag> generate_flags(GenerateOptions& o) {
  return {
      {"prompt", [&o](const std::string& value) { o.prompt = value; }, /*is_switch=*/false, /*may_be_empty=*/true},
      {"prompt_tokens", [&o](const std::string& value) { o.prompt_tokens = parse_tokens(value); }},
      {"max_tokens", [&o](const std::string& value) { o.max_tokens = parse_integer("max_tokens", value, 1); }},
      {"temperature",
       [&o](const std::string& value) { o.temperature = parse_real("temperature", value, 0, kHottest); }},
      {"top_k", [&o](const std::string& value) { o.top_k = parse_integer("top_k", value, 0); }},
      {"seed",
       [&o](const std::string& value) { o.seed = parse_number<uint64_t>("seed", value, "an integer, 0 or more"); }},
      {"device", [&o](const std::string& value) { o.device = one_of("device", value, {"auto", "cpu", "cuda"}); }},
      {"dtype", [&o](const std::string& value) { o.dtype = one_of("dtype", value, {"fp32", "bf16"}); }},
      {"tag", [&o](const std::string& value) { o.tag = value; }},
      {"base_model", [&o](const std::string& value) { o.base_model = value; }},
      {"model_config", [&o](const std::string& value) { o.model_config = value; }},
      {"tokenizer",
       [&o](const std::string& value) {
         if (value != "bytes") {
           throw_user_error(
               "--tokenizer {}: mpzero generate supports only bytes; for other tokenizers, use app/generate.py with "
               "the same flags.",
               value);
         }
         o.tokenizer = value;
       }},
      {"chat",
       [](const std::string&) {
         throw_user_error("mpzero generate does not support --chat; use app/generate.py with the same flags.");
       }},
      {"untrained", [&o](const std::string&) { o.untrained = true; }, true},
      {"describe", [&o](const std::string&) { o.describe = true; }, true},
  };
}

[[noreturn]] void throw_unknown(const std::string& argument, const std::vector<CommandFlag>& known) {
  const std::string name = argument.substr(0, argument.find('='));
  if (const auto nearest = nearest_flag(argument, known)) {
    throw_user_error("{} is not a flag of mpzero generate; did you mean --{}?", name, *nearest);
  }
  throw_user_error("{} is not a flag of mpzero generate; see `mpzero generate --help`.", name);
}

void check(const GenerateOptions& options) {
  if (options.folder.empty()) {
    throw_user_error(
        "the model is missing; pass a folder, e.g. `mpzero generate checkpoints --prompt \"Once upon a time\"`.");
  }
  if (options.describe) return;
  if (options.prompt && options.prompt_tokens) {
    throw_user_error("--prompt and --prompt_tokens are mutually exclusive; keep one of the two.");
  }
  if (!options.prompt && !options.prompt_tokens) {
    throw_user_error("the prompt is missing; pass --prompt TEXT or --prompt_tokens IDS.");
  }
  if (options.prompt && options.prompt->empty()) {
    throw_user_error("--prompt is empty; pass at least one character.");
  }
}

}  // namespace

GenerateOptions parse_generate_options(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  const std::vector<CommandFlag> known = generate_flags(options);
  read_command_flags(arguments, known, [&](const std::string& argument) {
    if (argument.starts_with("-") && argument != "-") throw_unknown(argument, known);
    if (!options.folder.empty()) {
      throw_user_error(
          "mpzero generate accepts a single model, not both \"{}\" and \"{}\"; quote a prompt with several words.",
          options.folder.string(), argument);
    }
    options.folder = argument;
  });
  check(options);
  return options;
}

std::string generate_help() {
  return "Usage: mpzero generate CHECKPOINT --prompt TEXT\n"
         "\n"
         "Completes a prompt in one process, without MPI.\n"
         "\n"
         "  CHECKPOINT            folder of checkpoints, checkpoint of mpzero or DeepSpeed, PEFT adapters, Hugging "
         "Face\n"
         "                        folder (config.json and weights), or name of a cached model, e.g. Qwen/Qwen3-0.6B\n"
         "  --prompt TEXT         text prompt; requires the bytes tokenizer. For other tokenizers and --chat, use\n"
         "                        app/generate.py, which accepts the same flags\n"
         "  --prompt_tokens IDS   prompt as token ids, e.g. 1,2,3; prints one id per line\n"
         "  --max_tokens N        maximum number of new tokens (default: 200, limited by max_position_embeddings)\n"
         "  --temperature T       sampling temperature; 0 is greedy (default: 0.8)\n"
         "  --top_k K             sample from the K most likely tokens; 0 samples from all tokens (default: 0)\n"
         "  --seed S              random seed for sampling (default: 42)\n"
         "  --device DEVICE       auto, cpu or cuda (default: auto, a GPU if available)\n"
         "  --dtype TYPE          fp32 or bf16 (default: bf16 on a GPU, fp32 on a CPU)\n"
         "  --tag TAG             tag of the checkpoint in the folder (default: latest)\n"
         "  --tokenizer bytes     tokenizer of a checkpoint that does not record one\n"
         "  --base_model DIR      base model of the adapters (default: the base recorded in the adapters)\n"
         "  --model_config FILE   config.json of a checkpoint without one, e.g. a DeepSpeed checkpoint\n"
         "  --untrained           use the run's initial random weights\n"
         "  --describe            print a JSON description of the model instead of a completion\n";
}

}  // namespace mpzero
