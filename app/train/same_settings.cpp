#include "app/train/same_settings.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/flags/training_flags.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/json.hpp"

namespace mpzero {
namespace {

// Paths may differ between hosts.
bool is_path(const std::string& value) {
  return value.starts_with('/') || value.starts_with('.') || value.starts_with('~');
}

// Adds the keys of nested objects as "zero_optimization.stage".
void add_keys(const std::string& file, const std::string& key, const nlohmann::json& value,
              ComparedSettings& settings) {
  if (value.is_string() && is_path(value.get<std::string>())) return;
  if (!value.is_object()) {
    settings.emplace_back(fmt::format("{}: {}", file, key), value.dump());
    return;
  }
  for (const auto& [name, inner] : value.items())
    add_keys(file, key.empty() ? name : key + "." + name, inner, settings);
}

bool may_differ(const Flag& flag) {
  return flag.unit == "FILE" || flag.unit == "DIR" || flag.unit == "PORT" || flag.unit == "ADDRESS";
}

// Returns "none" for a missing setting.
std::string find_value(const std::string& name, const ComparedSettings& settings) {
  for (const auto& [other, value] : settings) {
    if (other == name && !value.empty()) return value;
  }
  return "none";
}

// Throws UserError with the first difference, in the order of `here`, followed by settings that only `there` has.
void check_equal(const ComparedSettings& here, const ComparedSettings& there, const std::string& host_there) {
  if (here == there) return;
  for (const ComparedSettings* settings : {&here, &there}) {
    for (const auto& [name, ignored] : *settings) {
      const std::string value = find_value(name, here), other = find_value(name, there);
      if (value == other) continue;
      throw_user_error(
          "{} is {:.100} on host {}, but {:.100} on rank 0 (host {}); start all ranks with the same flags, "
          "ds_config.json, config.json and token files",
          name, value, host_name(), other, host_there);
    }
  }
}

}  // namespace

ComparedSettings compared_settings(const RunSetup& setup) {
  ComparedSettings settings;
  if (const std::string& file = setup.config.ds_config_json; !file.empty()) {
    add_keys("ds_config.json", "", parse_json(file, kConfigurationLimits), settings);
  }
  for (const FlagGroup& group : training_flags()) {
    for (const Flag& flag : group.flags) {
      const std::string value = flag.show(setup.config);
      if (!may_differ(flag) && !is_path(value)) settings.emplace_back("--" + flag.name, value);
    }
  }
  model::ModelConfig model = setup.model;
  model.unused = {};
  add_keys("config.json", "", nlohmann::json::parse(model.to_json()), settings);
  settings.emplace_back("the number of sequences in --train_data", fmt::to_string(setup.train_windows));
  for (const auto& [file, sequences] : setup.validation) {
    settings.emplace_back(fmt::format("the number of sequences in --validation_data {}", file.name),
                          fmt::to_string(sequences));
  }
  return settings;
}

void check_same_settings(const RunSetup& setup, ProcessGroup& group) {
  const ComparedSettings here = compared_settings(setup);
  const auto [host, of_rank_0] = broadcast(group, std::pair(host_name(), here));
  run_on_all_ranks(group, [&, &host = host, &there = of_rank_0] { check_equal(here, there, host); });
}

}  // namespace mpzero
