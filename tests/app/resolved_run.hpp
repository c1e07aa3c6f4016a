#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/config/run_config.hpp"
#include "app/config/settings_table.hpp"
#include "tests/app/error_from.hpp"

// Helpers for tests that resolve a run's settings from a ds_config.json and a command line.
namespace mpzero {

inline constexpr ModelDims kModel{.hidden_size = 1024};

struct Result {
  RunConfig config;
  std::vector<std::string> warnings;
};

// `json`: text of ds_config.json; empty: no --deepspeed_config.
inline Result run(const std::string& json, std::vector<std::string> flags = {}, int world_size = 2) {
  flags.emplace_back("--train_data=t.h5");
  const io::DsConfig file = json.empty() ? io::DsConfig{} : io::parse_ds_config(json, "ds.json");
  Result result;
  result.config = resolve(parse_command_line(flags), file, world_size, kModel, result.warnings);
  return result;
}

inline std::string error_of(const std::string& json, const std::vector<std::string>& flags = {}, int world_size = 2) {
  return error_from([&] { run(json, flags, world_size); });
}

// Returns the settings table of a run whose layout has `nodes` nodes.
inline std::vector<std::string> table_of(const RunConfig& config, int nodes = 1) {
  RunSetup setup;
  setup.config = config;
  setup.layout.nodes = nodes;
  return settings_table(setup);
}

inline std::string trio(int64_t total, int64_t micro, int64_t accumulation) {
  std::string json;
  const auto add = [&](const char* key, int64_t value) {
    if (value > 0) json += fmt::format("{}\"{}\": {}", json.empty() ? "" : ", ", key, value);
  };
  add("train_batch_size", total);
  add("train_micro_batch_size_per_gpu", micro);
  add("gradient_accumulation_steps", accumulation);
  return "{" + json + "}";
}

// Returns the run's warnings that contain `words`.
inline std::vector<std::string> warnings_with(const Result& result, const std::string& words) {
  std::vector<std::string> found;
  for (const std::string& warning : result.warnings) {
    if (warning.find(words) != std::string::npos) found.push_back(warning);
  }
  return found;
}

}  // namespace mpzero
