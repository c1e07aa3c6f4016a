#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mpzero {

// The command line of `mpzero generate`.
struct GenerateOptions {
  std::filesystem::path folder;  // checkpoint, folder of checkpoints, or Hugging Face folder
  std::string tag;
  std::string model_config;  // path of config.json
  std::string base_model;    // base of adapters: folder or cached model
  std::string tokenizer;     // "bytes"; empty: the recorded tokenizer
  std::optional<std::string> prompt;
  std::optional<std::vector<int64_t>> prompt_tokens;
  std::optional<int64_t> max_tokens;
  double temperature = 0.8;
  int64_t top_k = 0;
  uint64_t seed = 42;
  std::string device = "auto";
  std::string dtype;       // "fp32" or "bf16"; empty: bf16 on a GPU, fp32 on a CPU
  bool untrained = false;  // use the run's initial random weights
  bool describe = false;
  bool statistics_last = false;  // print statistics to stdout, after the ids
};

// Throws UserError for an invalid flag.
GenerateOptions parse_generate_options(const std::vector<std::string>& arguments);
std::string generate_help();

}  // namespace mpzero
