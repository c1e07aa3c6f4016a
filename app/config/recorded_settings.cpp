#include "app/config/recorded_settings.hpp"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "app/config/run_setup.hpp"
#include "app/config/settings_table.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json to_json(const io::TokenIdentity& identity) {
  ordered_json object = {{"num_tokens", identity.num_tokens}};
  if (!identity.tokens_xxh3.empty()) object["tokens_xxh3"] = identity.tokens_xxh3;
  if (!identity.documents_xxh3.empty()) object["documents_xxh3"] = identity.documents_xxh3;
  if (identity.tokenization != io::Tokenization{}) object["tokenization"] = identity.tokenization;
  return object;
}

// Returns std::nullopt if `value` is not an identity.
std::optional<io::TokenIdentity> to_identity(const json& value) {
  if (!value.is_object() || !value.contains("num_tokens") || !value["num_tokens"].is_number_integer()) {
    return std::nullopt;
  }
  const auto hash = [&](const char* key) {
    return value.contains(key) && value[key].is_string() ? value[key].get<std::string>() : std::string();
  };
  return io::TokenIdentity{.num_tokens = value["num_tokens"].get<int64_t>(),
                           .tokens_xxh3 = hash("tokens_xxh3"),
                           .documents_xxh3 = hash("documents_xxh3"),
                           .tokenization = value.value("tokenization", json()).get<io::Tokenization>()};
}

constexpr const char* kSources = "sources";

// Throws UserError if two files contain the same tokens, since each sequence would be read twice.
void check_are_different(const std::vector<io::TokenIdentity>& sources, const RunConfig& config) {
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!io::same_tokens(sources[i], sources[j]).value_or(false)) continue;
      throw_user_error(
          "--train_data {}: files {} and {} contain the same tokens; keep only one, with the sum of both "
          "weights.",
          config.train_data, j + 1, i + 1);
    }
  }
}

// Returns true if the key is compared elsewhere: see schedule_after() and changed_layout().
bool is_told_apart(const std::string& key) {
  return key == kScheduleInForce || key == kScheduleOnResume || key == kEpochBatch || key == "num_decay_steps" ||
         key == kLayout;
}

// Returns true for DeepSpeed's optimizer types that mpzero treats as AdamW: see io::OptimizerSection.
bool is_adamw(const std::string& type) {
  return type == "AdamW" || type == "adamw" || type == "Adamw" || type == "Adam" || type == "adam";
}

// Returns true if weight decay is added to the gradient (L2 regularization), which is never the case for AdamW.
bool has_coupled_decay(const json& ds_config) {
  const json& optimizer = ds_config["optimizer"];
  if (optimizer["type"] != "Adam" && optimizer["type"] != "adam") return false;
  const json params = optimizer.contains("params") && optimizer["params"].is_object() ? optimizer["params"] : json();
  return params.contains("adam_w_mode") && params["adam_w_mode"] == false && params.contains("weight_decay") &&
         params["weight_decay"] != 0;
}

// Returns the settings in a ds_config.json, excluding "auto" values.
json settings_in(const json& ds_config) {
  json settings = json::object();
  const auto take = [&](const char* place, const char* key, auto has_type) {
    const json::json_pointer pointer(place);
    if (ds_config.contains(pointer) && has_type(ds_config[pointer])) settings[key] = ds_config[pointer];
  };
  const auto number = [](const json& value) { return value.is_number(); };
  const auto text = [](const json& value) { return value.is_string() && value != "auto"; };
  take("/optimizer/type", "optimizer", text);
  if (settings.contains("optimizer") && is_adamw(settings["optimizer"].get<std::string>())) {
    settings["optimizer"] = has_coupled_decay(ds_config) ? "Adam with adam_w_mode false" : "AdamW";
  }
  take("/optimizer/params/lr", "lr", number);
  take("/optimizer/params/betas/0", "beta1", number);
  take("/optimizer/params/betas/1", "beta2", number);
  take("/optimizer/params/eps", "eps", number);
  take("/optimizer/params/weight_decay", "weight_decay", number);
  take("/scheduler/type", "scheduler", text);
  for (const std::string key :
       {"warmup_min_lr", "warmup_max_lr", "warmup_min_ratio", "cos_min_ratio", "warmup_num_steps", "total_num_steps"}) {
    take(("/scheduler/params/" + key).c_str(), key.c_str(), number);
  }
  take("/gradient_clipping", "gradient_clipping", number);
  take("/train_batch_size", "train_batch_size", number);
  return settings;
}

// Parses a JSON object. `what`: name of the object for messages.
json parse_object(const std::string& text, const std::string& what) {
  json object = parse_user_json(text, what, kConfigurationLimits);
  if (!object.is_object()) throw_user_error("{} is not a JSON object; choose a different checkpoint.", what);
  return object;
}

using ValidationIdentities = std::map<std::string, io::TokenIdentity>;

// Returns the identity of an unnamed file, or an object that maps set names to identities; null without validation.
ordered_json to_json(const ValidationIdentities& sets) {
  if (const auto unnamed = sets.find(""); unnamed != sets.end()) return to_json(unnamed->second);
  ordered_json object;
  for (const auto& [name, identity] : sets) object[name] = to_json(identity);
  return object;
}

ValidationIdentities to_validation(const json& value) {
  if (const auto unnamed = to_identity(value)) return {{"", *unnamed}};
  ValidationIdentities sets;
  if (!value.is_object()) return sets;
  for (const auto& [name, of_set] : value.items()) {
    if (const auto identity = to_identity(of_set)) sets.emplace(name, *identity);
  }
  return sets;
}

// Returns "validation_data" or, for a named set, "validation_data wiki".
std::string validation_key(const std::string& set) {
  return set.empty() ? kValidationData : fmt::format("{} {:.100}", kValidationData, set);
}

// Describes each set that was added, removed or changed.
void compare_validation(const ValidationIdentities& before, const ValidationIdentities& now,
                        std::vector<std::string>& changes) {
  const auto shown = [](const ValidationIdentities& sets, const std::string& name) {
    return sets.contains(name) ? io::show(sets.at(name)) : std::string("none");
  };
  ValidationIdentities all = before;
  all.insert(now.begin(), now.end());
  for (const auto& [name, ignored] : all) {
    const bool in_both = before.contains(name) && now.contains(name);
    if (in_both && io::same_tokens(before.at(name), now.at(name)).value_or(true)) continue;
    changes.push_back(fmt::format("{} {} -> {}", validation_key(name), shown(before, name), shown(now, name)));
  }
}

ordered_json to_json(const DataIdentity& data) {
  return {{kTrainData, to_json(data.train)}, {kValidationData, to_json(data.validation)}};
}

// Excludes the tokenization, which is recorded for the whole training data.
ordered_json to_json(io::TokenIdentity identity, const std::string& file, const io::MixtureSource& at) {
  identity.tokenization = {};
  ordered_json object = to_json(identity);
  object.update({{"file", file},
                 {"weight", at.weight},
                 {"seed", at.seed},
                 {"sequences_seen", at.windows_seen},
                 {"drawn", at.drawn}});
  return object;
}

}  // namespace

std::string show_setting(const json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return fmt::format("{:.100}", value.get<std::string>());
  if (value.is_number_float()) return fmt::to_string(value.get<double>());
  if (const auto identity = to_identity(value)) return io::show(*identity);
  if (value.is_array()) {
    std::vector<std::string> elements;
    for (const json& element : value) elements.push_back(show_setting(element));
    return fmt::to_string(fmt::join(elements, ","));
  }
  return fmt::format("{:.100}", value.dump());
}

bool is_data_identity(const json& value) { return to_identity(value).has_value(); }

bool same_setting(const json& before, const json& now) {
  const auto one = to_identity(before), other = to_identity(now);
  return one && other ? io::same_tokens(*one, *other).value_or(true) : before == now;
}

DataIdentity identify_data(const RunConfig& config, ProcessGroup& group) {
  DataIdentity found;
  run_on_all_ranks(group, [&] {
    if (group.rank() != 0) return;
    for (const TrainFile& file : train_files(config.train_data)) {
      found.sources.push_back(io::read_token_identity(file.path));
    }
    check_are_different(found.sources, config);
    found.train = io::identity_of(found.sources);
    for (const ValidationFile& file : config.validation_data) {
      found.validation.emplace(file.name, io::read_token_identity(file.path));
    }
  });
  ordered_json sent = to_json(found);
  for (const io::TokenIdentity& source : found.sources) sent["sources"].push_back(to_json(source));
  const json all = parse_json(broadcast(group, sent.dump()), kLineLimits);
  DataIdentity data{.train = to_identity(all.at(kTrainData)).value(),
                    .validation = to_validation(all.at(kValidationData))};
  for (const json& source : all.at("sources")) data.sources.push_back(to_identity(source).value());
  return data;
}

ordered_json recorded_settings(const RunSetup& setup, const std::vector<io::MixtureSource>& sources) {
  ordered_json settings = settings_record(setup.config);
  if (setup.data) settings.update(to_json(*setup.data));
  for (size_t i = 0; i < sources.size(); ++i) {
    settings[kTrainData][kSources].push_back(
        to_json(setup.data.value().sources[i], setup.train_files[i].path, sources[i]));
  }
  settings[kLayout] = layout_record(setup);
  // Command-line values may contain invalid UTF-8, which JSON cannot store. Return the values as stored.
  return ordered_json::parse(settings.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

json known_settings(const io::TrainingProgress& progress, const std::string& checkpoint) {
  json settings = json::object();
  if (!progress.run_config_json.empty()) {
    settings = settings_in(parse_object(progress.run_config_json, "the ds_config of " + checkpoint));
  }
  // DeepSpeed records the numbers of sequences and steps.
  const int64_t step = progress.step, sequences = progress.sequences_seen;
  if (!settings.contains("train_batch_size") && step > 0 && sequences > 0 && sequences % step == 0) {
    settings["train_batch_size"] = sequences / step;
  }
  if (!progress.dtype.empty()) settings["dtype"] = progress.dtype;
  if (!progress.settings_json.empty()) {
    settings.update(parse_object(progress.settings_json, "the settings of " + checkpoint));
    for (const char* key : kOnlyWhereAsked) settings.emplace(key, nullptr);
  }
  return settings;
}

std::vector<std::string> changed_settings(const json& known, ordered_json now) {
  for (const char* key : kOnlyWhereAsked) now.emplace(key, nullptr);
  std::vector<std::string> changes;
  for (const auto& [key, value] : now.items()) {
    if (key == kTrainData || is_told_apart(key) || !known.contains(key)) continue;
    const json& before = known[key];
    const json after = value;
    if (key == kValidationData) {
      compare_validation(to_validation(before), to_validation(after), changes);
      continue;
    }
    if (before == after) continue;
    changes.push_back(fmt::format("{} {} -> {}", key, show_setting(before), show_setting(after)));
  }
  // A newer version of mpzero may have recorded additional settings.
  for (const auto& [key, value] : known.items()) {
    if (!now.contains(key) && !is_told_apart(key))
      changes.push_back(fmt::format("{:.100} {} -> unknown to this version", key, show_setting(value)));
  }
  return changes;
}

std::vector<std::string> changed_layout(const json& known, const ordered_json& now) {
  std::vector<std::string> changes;
  if (!known.contains(kLayout) || !now.contains(kLayout)) return changes;
  const json& before = known[kLayout];
  for (const auto& [key, value] : now[kLayout].items()) {
    const json after = value;
    if (!before.contains(key) || before[key] == after) continue;
    changes.push_back(fmt::format("{} {} -> {}", key, show_setting(before[key]), show_setting(after)));
  }
  return changes;
}

std::optional<std::string> recorded_recompute(const json& known) {
  const json::json_pointer place("/" + std::string(kLayout) + "/recompute");
  return known.contains(place) ? std::optional(show_setting(known[place])) : std::nullopt;
}

std::vector<std::string> uncompared_data(const json& known, const ordered_json& now) {
  std::vector<std::string> keys;
  const auto differ = [](const io::TokenIdentity& before, const io::TokenIdentity& after) {
    return !io::same_tokens(before, after).has_value();
  };
  const auto value_of = [](const json& settings, const char* key) { return settings.value(key, json()); };
  const auto train_before = train_data_of(known), train_now = train_data_of(json(now));
  if (train_before && train_now && differ(*train_before, *train_now)) keys.emplace_back(kTrainData);
  const ValidationIdentities before = to_validation(value_of(known, kValidationData));
  for (const auto& [name, identity] : to_validation(value_of(json(now), kValidationData))) {
    if (before.contains(name) && differ(before.at(name), identity)) keys.push_back(validation_key(name));
  }
  return keys;
}

std::vector<RecordedSource> recorded_sources(const json& settings, const std::string& checkpoint) {
  std::vector<RecordedSource> sources;
  const json::json_pointer place(fmt::format("/{}/{}", kTrainData, kSources));
  if (!settings.contains(place)) return sources;
  try {
    for (const json& source : settings[place]) {
      sources.push_back({.identity = to_identity(source).value(),
                         .file = source.at("file").get<std::string>(),
                         .at = {.weight = source.at("weight").get<double>(),
                                .seed = source.at("seed").get<uint64_t>(),
                                .windows_seen = source.at("sequences_seen").get<int64_t>(),
                                .drawn = source.at("drawn").get<int64_t>()}});
      const io::MixtureSource& at = sources.back().at;
      if (!(at.weight > 0 && std::isfinite(at.weight)) || at.drawn < 0 || at.windows_seen < at.drawn) {
        throw std::out_of_range(fmt::format("weight {}, drawn {} of {}", at.weight, at.drawn, at.windows_seen));
      }
    }
  } catch (const std::exception& error) {
    throw_user_error("{} has invalid positions in {}.{} ({}); choose a different checkpoint.", checkpoint, kTrainData,
                     kSources, error.what());
  }
  return sources;
}

std::optional<io::TokenIdentity> train_data_of(const json& settings) {
  return settings.contains(kTrainData) ? to_identity(settings[kTrainData]) : std::nullopt;
}

}  // namespace mpzero
