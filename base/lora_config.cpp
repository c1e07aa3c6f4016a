#include "base/lora_config.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace mpzero {
using nlohmann::json;
namespace {

// Returns an empty list for a pattern or per-layer names, which PEFT may also save.
std::vector<std::string> plain_targets(const json& targets) {
  const auto is_plain = [](const json& name) { return name.get<std::string>().find('.') == std::string::npos; };
  if (targets.is_string() || !std::ranges::all_of(targets, is_plain)) return {};
  return targets.get<std::vector<std::string>>();
}

bool are_targets(const json& found) {
  return found.is_string() || (found.is_array() && !found.empty() && std::ranges::all_of(found, &json::is_string));
}

}  // namespace

double LoraConfig::scale() const {
  const auto rank = static_cast<double>(r);
  return alpha / (rslora ? std::sqrt(rank) : rank);
}

LoraConfig read_lora_config(const json& object, const std::string& source) {
  const auto value = [&](const char* key, const char* type, auto is_valid) {
    json found = object.value(key, json());
    if (is_valid(found)) return found;
    throw_user_error("{}: {} is {:.100}, expected {}; use adapters saved by PEFT or mpzero", source, key, found.dump(),
                     type);
  };
  const auto is_number = [](const json& found) { return found.is_number(); };
  const json rslora =
      value("use_rslora", "true or false", [](const json& found) { return found.is_null() || found.is_boolean(); });
  const json dropout = value("lora_dropout", "a number in [0, 1)", [](const json& found) {
    return found.is_null() || (found.is_number() && found >= 0 && found < 1);
  });
  return {.r = value("r", "an integer", [](const json& found) { return found.is_number_integer(); }),
          .alpha = value("lora_alpha", "a number", is_number),
          .targets = plain_targets(value("target_modules", "names or a pattern", are_targets)),
          .rslora = rslora == json(true),
          .dropout = dropout.is_null() ? 0 : dropout.get<double>()};
}

json to_json(const LoraConfig& lora) {
  return {{"r", lora.r},
          {"lora_alpha", lora.alpha},
          {"lora_dropout", lora.dropout},
          {"target_modules", lora.targets},
          {"use_rslora", lora.rslora}};
}

}  // namespace mpzero
