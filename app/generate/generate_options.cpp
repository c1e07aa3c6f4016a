#include "app/generate/generate_options.hpp"

#include <algorithm>

#include "base/command_line/command_flags.hpp"
#include "base/error.hpp"
#include "model/architecture/config.hpp"

namespace mpzero {
namespace {

constexpr double kHottest = 100;

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
  const FlagValue prompt_tokens{
      .read = [&o](const std::string&, const std::string& text) { o.prompt_tokens = parse_tokens(text); }};
  const FlagValue tokenizer{.read = [&o](const std::string& flag, const std::string& text) {
    if (text != "bytes") {
      throw_user_error(
          "--{} {}: mpzero generate supports only bytes; for other tokenizers, use app/generate.py with the same "
          "flags.",
          flag, text);
    }
    o.tokenizer = text;
  }};
  const FlagValue chat{.read = [](const std::string&, const std::string&) {
    throw_user_error("mpzero generate does not support --chat; use app/generate.py with the same flags.");
  }};
  return {
      {"prompt", text(o.prompt), "TEXT",
       "text prompt; requires the bytes tokenizer. For other tokenizers and --chat, use app/generate.py, which accepts "
       "the same flags"},
      {"prompt_tokens", prompt_tokens, "IDS", "prompt as token ids, e.g. 1,2,3; prints one id per line"},
      {"max_tokens", integer(o.max_tokens, 1), "N",
       "maximum number of new tokens (default: 200, limited by max_position_embeddings)"},
      {"temperature", real(o.temperature, 0, kHottest), "T", "sampling temperature; 0 is greedy"},
      {"top_k", integer(o.top_k, 0), "K", "sample from the K most likely tokens; 0 samples from all tokens"},
      {"seed", integer(o.seed, 0), "S", "random seed for sampling"},
      {"device", choice(o.device, {"auto", "cpu", "cuda"}), "DEVICE", "auto (a GPU if available), cpu or cuda"},
      {"dtype", choice(o.dtype, {"fp32", "bf16"}), "TYPE", "fp32 or bf16 (default: bf16 on a GPU, fp32 on a CPU)"},
      {"tag", text(o.tag), "TAG", "tag of the checkpoint in the folder (default: latest)"},
      {"tokenizer", tokenizer, "bytes", "tokenizer of a checkpoint that does not record one"},
      {"base_model", text(o.base_model), "DIR",
       "base model of the adapters (default: the base model recorded in the adapters)"},
      {"model_config", text(o.model_config), "FILE",
       "config.json, or a folder that contains it, for a checkpoint that contains none, e.g. a DeepSpeed checkpoint"},
      {"untrained", switch_on(o.untrained), "", "use the run's initial random weights"},
      {"describe", switch_on(o.describe), "", "print a JSON description of the model instead of a completion"},
      {"statistics_last", switch_on(o.statistics_last), "",
       "with --prompt_tokens: print statistics as the last line of stdout"},
      {"chat", chat},
  };
}

void check(const GenerateOptions& options) {
  if (options.folder.empty()) {
    throw_user_error(
        "the model is missing; pass a folder, e.g. `mpzero generate checkpoints --prompt \"Once upon a time\"`.");
  }
  if (options.describe) return;
  if (options.prompt && options.prompt_tokens) {
    throw_user_error("--prompt and --prompt_tokens are mutually exclusive; pass only one.");
  }
  if (!options.prompt && !options.prompt_tokens) {
    throw_user_error("the prompt is missing; pass --prompt TEXT or --prompt_tokens IDS.");
  }
  if (options.prompt && options.statistics_last) {
    throw_user_error("--statistics_last requires --prompt_tokens; omit it.");
  }
}

}  // namespace

GenerateOptions parse_generate_options(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  const std::vector<std::string> folders =
      read_flags_of("mpzero generate", arguments, generate_flags(options), arguments.size());
  if (folders.size() > 1) {
    throw_user_error(
        "mpzero generate accepts a single model, not both \"{}\" and \"{}\"; quote a prompt that contains spaces.",
        folders[0], folders[1]);
  }
  if (!folders.empty()) options.folder = folders.front();
  options.model_config = model::config_file(options.model_config).string();
  check(options);
  return options;
}

std::string generate_help() {
  GenerateOptions defaults;
  return "Usage: mpzero generate CHECKPOINT --prompt TEXT\n"
         "\n"
         "Completes a prompt in one process, without MPI.\n"
         "\n" +
         describe_flags(generate_flags(defaults),
                        {{"CHECKPOINT",
                          "folder of checkpoints, mpzero or DeepSpeed checkpoint, PEFT adapters, Hugging Face "
                          "folder (config.json and weights), or name of a cached model, e.g. Qwen/Qwen3-0.6B"}});
}

}  // namespace mpzero
