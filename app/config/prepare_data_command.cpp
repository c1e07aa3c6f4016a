#include "app/config/prepare_data_command.hpp"

#include <algorithm>
#include <filesystem>

#include "app/config/run_config.hpp"

namespace mpzero {
namespace {

constexpr const char* kProgram = ".venv/bin/python app/prepare_data.py";

std::string shell_quoted(const std::string& argument) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,";
  if (!argument.empty() && argument.find_first_not_of(plain) == std::string::npos) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string prepare_data_command(const CommandLine& line, const std::string& path) {
  const std::vector<ValidationFile>& sets = line.validation_data;
  const auto is_path = [&](const ValidationFile& set) { return set.path == path; };
  const bool validation = line.train_data != path && std::any_of(sets.begin(), sets.end(), is_path);
  const bool local = line.local_dataset.value_or(!line.dataset.empty() && std::filesystem::exists(line.dataset));
  std::string command = kProgram + std::string(" --dataset ");
  const bool other_text = validation && local;
  if (other_text) {
    command += "PATH_OF_VALIDATION_TEXT";
  } else {
    command += line.dataset.empty() ? "NAME_OR_PATH" : shell_quoted(line.dataset);
  }
  // --dataset_config_name applies only to --dataset.
  if (!line.dataset_config_name.empty() && !other_text)
    command += " --dataset_config_name " + shell_quoted(line.dataset_config_name);
  if (line.local_dataset) command += std::string(" --local_dataset ") + (*line.local_dataset ? "true" : "false");
  if (validation && !local) command += " --split validation";
  const std::string default_tokenizer = model_name(line) == Settings{}.model_type ? "Qwen/Qwen3-0.6B" : "TOKENIZER";
  command += " --tokenizer " + shell_quoted(line.tokenizer.empty() ? default_tokenizer : line.tokenizer);
  command += " --output " + shell_quoted(path);
  if (!validation && sets.size() == 1 && !std::filesystem::exists(sets.front().path)) {
    command += " --validation_output " + shell_quoted(sets.front().path);
  }
  return command;
}

std::string rewrite_data_command(const std::string& path) {
  return kProgram + std::string(" --rewrite ") + shell_quoted(path);
}

}  // namespace mpzero
