#include "app/checkpoint/checkpoint_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/config/recorded_settings.hpp"
#include "app/config/settings_table.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text/printable.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = 100;

std::string shown(const std::string& text) {
  std::string line = printable(text);
  if (line.size() <= kMostBytes) return line;
  size_t end = kMostBytes;
  while ((line[end] & 0xC0) == 0x80) --end;  // do not split a UTF-8 character
  return line.substr(0, end);
}

// Adds the members of an object, with nested keys as "outer.inner". A data identity is a single fact.
void add_members(const json& object, const std::string& section, const std::string& prefix,
                 std::vector<CheckpointFact>& facts) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && !is_data_identity(value)) {
      add_members(value, section, prefix + key + ".", facts);
    } else {
      facts.push_back({section, prefix + key, value});
    }
  }
}

std::string full_key(const CheckpointFact& fact) {
  return fact.section.empty() ? fact.key : fact.section + "." + fact.key;
}

}  // namespace

std::vector<CheckpointFact> checkpoint_facts(const io::StoredCheckpoint& stored) {
  const io::TrainingProgress& progress = stored.progress();
  const io::RunRecord& run = stored.run();
  const std::string folder = stored.folder().string();
  std::vector<CheckpointFact> facts;
  const auto add = [&](const char* key, json value) { facts.push_back({"", key, std::move(value)}); };
  add("saved_by", stored.made_by_mpzero() ? "mpzero" : "DeepSpeed");
  if (!run.id.empty()) add("run", run.id);
  if (!run.init_from.empty()) add("init_from", run.init_from);
  if (!run.init_from_hash.empty()) add("init_from_hash", run.init_from_hash);
  if (!run.init_adapters.empty()) add("init_adapters", run.init_adapters);
  if (!run.init_adapters_hash.empty()) add("init_adapters_hash", run.init_adapters_hash);
  add("step", progress.step);
  if (stored.made_by_mpzero()) add("tokens_seen", progress.tokens_seen);
  add("sequences_seen", progress.sequences_seen);
  if (stored.made_by_mpzero()) add("seed", progress.seed);
  if (!progress.data_order.empty()) add("data_order", progress.data_order);
  if (!std::isnan(progress.lr)) add("last_lr", progress.lr);
  const auto parameters = stored.parameters();
  add("parameters", std::accumulate(parameters.begin(), parameters.end(), int64_t{0},
                                    [](int64_t sum, const ParameterSpec& one) { return sum + one.numel(); }));
  if (!progress.model_config_json.empty()) {
    const std::string source = "the model configuration of " + folder;
    add_members(parse_user_json(progress.model_config_json, source, kConfigurationLimits), "model", "", facts);
  }
  json settings = known_settings(progress, folder);
  if (!stored.made_by_mpzero()) {
    for (const char* key : kOnlyWhereAsked) settings.erase(key);
  }
  json layout = json::object();
  if (settings.contains(kLayout) && settings[kLayout].is_object()) layout = settings[kLayout];
  settings.erase(kLayout);
  layout.emplace("zero_stage", progress.zero_stage);
  add_members(settings, "settings", "", facts);
  add_members(layout, "layout", "", facts);
  return facts;
}

std::vector<std::string> describe_facts(const std::vector<CheckpointFact>& facts) {
  size_t width = 0;
  for (const CheckpointFact& fact : facts) width = std::max(width, shown(fact.key).size());
  std::vector<std::string> lines;
  std::string section;
  for (const CheckpointFact& fact : facts) {
    if (fact.section != section) lines.push_back(section = fact.section);
    lines.push_back(fmt::format("{}{:<{}}  {}", section.empty() ? "" : "  ", shown(fact.key),
                                section.empty() ? width + 2 : width, shown(show_setting(fact.value))));
  }
  return lines;
}

std::vector<std::array<std::string, 3>> different_facts(const std::vector<CheckpointFact>& a,
                                                        const std::vector<CheckpointFact>& b) {
  const auto find = [](const std::vector<CheckpointFact>& facts, const CheckpointFact& wanted) {
    const auto found = std::ranges::find_if(
        facts, [&](const CheckpointFact& one) { return one.section == wanted.section && one.key == wanted.key; });
    return found == facts.end() ? nullptr : &found->value;
  };
  const std::string unknown = "not recorded";
  std::vector<std::array<std::string, 3>> differences;
  for (const CheckpointFact& fact : a) {
    const json* const other = find(b, fact);
    if (other != nullptr && same_setting(fact.value, *other)) continue;
    differences.push_back({shown(full_key(fact)), shown(show_setting(fact.value)),
                           other != nullptr ? shown(show_setting(*other)) : unknown});
  }
  for (const CheckpointFact& fact : b) {
    if (find(a, fact) == nullptr) {
      differences.push_back({shown(full_key(fact)), unknown, shown(show_setting(fact.value))});
    }
  }
  return differences;
}

}  // namespace mpzero
