#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

namespace mpzero::plan {

// Two nodes with four GPUs each.
inline const std::vector<std::string> kFlags = {"--model_config=" + kModels + "qwen3_0_6b.json", "--gpu=H200",
                                                "--nproc_per_node=4", "--nodes=2", "--train_batch_size=32"};

inline nlohmann::json comparison() {
  std::vector<std::string> flags = kFlags;
  flags.insert(flags.end(), {"--gradient_accumulation_steps=4", "--compare"});
  return json_of(flags);
}

inline nlohmann::json of_several(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {kFlags[0], "--seq_length=512", "--json"};
  flags.insert(flags.end(), more.begin(), more.end());
  return nlohmann::json::parse(plan_output(flags).text);
}

// Returns the first row of these hosts.
inline const nlohmann::json& row_of(const nlohmann::json& found, const std::string& instance) {
  for (const nlohmann::json& one : found["ranked"]) {
    if (one["instance"] == instance) return one;
  }
  FAIL("no row of " << instance);
  return found;
}

}  // namespace mpzero::plan
