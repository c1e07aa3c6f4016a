#include "io/ds_config/reader.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

ordered_json number_limits(double minimum, double maximum, Auto allow_auto) {
  ordered_json limits = {{"minimum", minimum}, {"auto", allow_auto == Auto::kAllowed}};
  if (std::isfinite(maximum)) limits["maximum"] = maximum;
  return limits;
}

}  // namespace

void NotActedOn::add(const std::string& key_path, const std::string& what_happens_instead) {
  for (auto& [reason, keys] : keys_by_reason_) {
    if (reason == what_happens_instead) {
      keys.push_back(key_path);
      return;
    }
  }
  keys_by_reason_.push_back({what_happens_instead, {key_path}});
}

std::vector<std::string> NotActedOn::lines(const std::string& file) const {
  std::vector<std::string> lines;
  lines.reserve(keys_by_reason_.size());
  for (const auto& [reason, keys] : keys_by_reason_) {
    lines.push_back(fmt::format("{}: mpzero ignores {}: {}.", file, join(keys), reason));
  }
  return lines;
}

void NotActedOn::add_problem(const std::string& key_path, const std::string& sentence) {
  const auto is_of_key = [&](const auto& problem) { return problem.first == key_path; };
  if (std::none_of(problems_.begin(), problems_.end(), is_of_key)) problems_.emplace_back(key_path, sentence);
}

void NotActedOn::refuse_problems(const std::string& file) const {
  if (problems_.empty()) return;
  std::string all;
  for (const auto& [key, sentence] : problems_) all += (all.empty() ? "" : " Also: ") + sentence;
  throw_user_error("{}: {}", file, all);
}

ObjectReader::ObjectReader(const json& object, std::string path, const std::string& file, NotActedOn& not_acted_on)
    : object_(&object), path_(std::move(path)), file_(file), not_acted_on_(&not_acted_on) {}

std::string ObjectReader::path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

void ObjectReader::refuse(const std::string& key, const std::string& message) const {
  not_acted_on_->add_problem(path_of(key), fmt::format("{} {}.", path_of(key), message));
}

const json* ObjectReader::find(const std::string& key) {
  known_.push_back(key);
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void ObjectReader::note(const std::string& key, const char* type, ordered_json limits) {
  ordered_json what = {{"type", type}};
  if (!limits.is_null()) what.update(limits);
  not_acted_on_->accepted.emplace(path_of(key), std::move(what));
}

bool ObjectReader::has(const std::string& key) { return find(key) != nullptr; }

template <typename T>
const json* ObjectReader::find_value(const std::string& key, Setting<T>& setting, Auto allow_auto,
                                     const char* wanted_type) {
  const json* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->is_string() && value->get_ref<const std::string&>() == "auto") {
    if (allow_auto == Auto::kRefused) {
      refuse(key, fmt::format("cannot be \"auto\"; it must be {}", wanted_type));
      return nullptr;
    }
    setting.source = SettingSource::kAuto;
    return nullptr;
  }
  setting.source = SettingSource::kGiven;
  return value;
}

void ObjectReader::read(const std::string& key, Setting<int64_t>& setting, Auto allow_auto, int64_t minimum,
                        int64_t maximum) {
  note(key, "integer", {{"minimum", minimum}, {"maximum", maximum}, {"auto", allow_auto == Auto::kAllowed}});
  const json* value = find_value(key, setting, allow_auto, "an integer");
  if (value == nullptr) return;
  constexpr double kIntegerLimit = 9.2e18;  // just below 2^63
  setting.source = SettingSource::kMissing;
  int64_t whole = 0;
  if (value->is_number_unsigned()) {
    const auto wide = value->get<uint64_t>();
    if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse(key, fmt::format("is {}, which is too large", wide));
    }
    whole = static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    whole = value->get<int64_t>();
  } else if (value->is_number_float() && std::abs(value->get<double>()) < kIntegerLimit &&
             value->get<double>() == std::floor(value->get<double>())) {
    whole = static_cast<int64_t>(value->get<double>());
  } else {
    return refuse(key, fmt::format("is {}; it must be an integer", value->dump()));
  }
  if (whole < minimum) return refuse(key, fmt::format("is {}; it must be {} or more", value->dump(), minimum));
  if (whole > maximum) return refuse(key, fmt::format("is {}; it must be {} or less", value->dump(), maximum));
  setting.source = SettingSource::kGiven;
  setting.value = whole;
}

std::optional<double> ObjectReader::number(const std::string& key, const json& value, double minimum,
                                           double maximum) const {
  std::string problem;
  const double number = value.is_number() ? value.get<double>() : 0;
  if (!value.is_number()) {
    problem = "must be a number";
  } else if (!(number >= minimum && number <= maximum)) {
    problem = std::isinf(maximum) ? fmt::format("must be {} or more", minimum)
                                  : fmt::format("must be between {} and {}", minimum, maximum);
  } else if (!std::isfinite(number)) {
    problem = "must be finite";
  } else {
    return number;
  }
  refuse(key, fmt::format("is {}; it {}", value.dump(), problem));
  return std::nullopt;
}

void ObjectReader::read(const std::string& key, Setting<double>& setting, Auto allow_auto, double minimum,
                        double maximum) {
  note(key, "number", number_limits(minimum, maximum, allow_auto));
  const json* value = find_value(key, setting, allow_auto, "a number");
  if (value == nullptr) return;
  const std::optional<double> found = number(key, *value, minimum, maximum);
  if (!found) setting.source = SettingSource::kMissing;
  setting.value = found.value_or(setting.value);
}

void ObjectReader::read(const std::string& key, Setting<bool>& setting, Auto allow_auto) {
  note(key, "boolean", {{"auto", allow_auto == Auto::kAllowed}});
  const json* value = find_value(key, setting, allow_auto, "true or false");
  if (value == nullptr) return;
  if (value->is_boolean()) {
    setting.value = value->get<bool>();
    return;
  }
  setting.source = SettingSource::kMissing;
  refuse(key, fmt::format("is {}; it must be true or false", value->dump()));
}

void ObjectReader::read(const std::string& key, Setting<std::string>& setting, Auto allow_auto,
                        const std::vector<std::string>& choices) {
  note(key, "choice", {{"choices", choices}, {"auto", allow_auto == Auto::kAllowed}});
  const json* value = find_value(key, setting, allow_auto, "a string");
  if (value == nullptr) return;
  if (value->is_string()) {
    for (const std::string& choice : choices) {
      if (lower_case(choice) == lower_case(value->get<std::string>())) {
        setting.value = choice;
        return;
      }
    }
  }
  setting.source = SettingSource::kMissing;
  refuse(key, fmt::format("is {}; it must be one of {}", value->dump(), join(choices)));
}

void ObjectReader::read(const std::string& key, Setting<std::pair<double, double>>& setting, Auto allow_auto,
                        double minimum, double maximum) {
  note(key, "pair", number_limits(minimum, maximum, allow_auto));
  const json* value = find_value(key, setting, allow_auto, "a pair of numbers");
  if (value == nullptr) return;
  setting.source = SettingSource::kMissing;
  if (!value->is_array() || value->size() != 2) {
    return refuse(key, fmt::format("is {}; it must be a pair of numbers such as [0.9, 0.95]", value->dump()));
  }
  const auto first = number(key, (*value)[0], minimum, maximum), second = number(key, (*value)[1], minimum, maximum);
  if (!first || !second) return;
  setting.source = SettingSource::kGiven;
  setting.value = {*first, *second};
}

void ObjectReader::read(const std::string& key, Setting<std::vector<std::string>>& setting, bool or_one) {
  note(key, "names");
  const json* value = find_value(key, setting, Auto::kRefused, "a list of names");
  if (value == nullptr) return;
  if (or_one && value->is_string() && *value != "") {
    setting.value = std::vector{value->get<std::string>()};
    return;
  }
  const bool is_list = value->is_array() && std::all_of(value->begin(), value->end(), [](const json& word) {
                         return word.is_string() && !word.get<std::string>().empty();
                       });
  if (is_list) {
    setting.value = value->get<std::vector<std::string>>();
    return;
  }
  setting.source = SettingSource::kMissing;
  refuse(key, fmt::format("is {}; it must be a list of names such as [\"a\", \"b\"]", value->dump()));
}

std::optional<std::string> ObjectReader::read_text(const std::string& key) {
  note(key, "text");
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    refuse(key, fmt::format("is {}; it must be a string", value->dump()));
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::optional<ObjectReader> ObjectReader::section(const std::string& key) {
  note(key, "object");
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    refuse(key, fmt::format("is {}; it must be an object {{...}}", value->dump()));
    return std::nullopt;
  }
  return ObjectReader(*value, path_of(key), file_, *not_acted_on_);
}

void ObjectReader::harmless(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    note(key, "any");
    find(key);
  }
}

void ObjectReader::not_acted_on(std::initializer_list<const char*> keys, const json& quiet_value,
                                const std::string& what_happens_instead) {
  for (const char* key : keys) {
    note(key, "any");
    const json* value = find(key);
    if (value != nullptr && *value != quiet_value) not_acted_on_->add(path_of(key), what_happens_instead);
  }
}

void ObjectReader::only(const std::string& key, const json& accepted, const std::string& remedy) {
  note(key, "only", {{"value", accepted}, {"remedy", remedy}});
  const json* value = find(key);
  if (value != nullptr && *value != "auto" && *value != accepted) {
    refuse(key, fmt::format("is {}, which mpzero does not support; {}", value->dump(), remedy));
  }
}

void ObjectReader::refuse_enabled(const std::string& key, const std::string& remedy) {
  note(key, "disabled", {{"remedy", remedy}});
  const json* value = find(key);
  if (value == nullptr || *value == false) return;
  if (value->is_object()) {
    const auto enabled = value->find("enabled");
    if (value->empty() ||
        (enabled != value->end() && (*enabled == false || enabled->is_null() || *enabled == "auto"))) {
      return;
    }
  }
  refuse(key, "enables a feature that mpzero does not support; " + remedy);
}

void ObjectReader::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const auto nearest = nearest_name(key, known_);
    const std::string remedy =
        nearest ? fmt::format("did you mean {}?", path_of(*nearest)) : "remove it, or correct its name.";
    not_acted_on_->add_problem(path_of(key), fmt::format("unknown key {}; {}", path_of(key), remedy));
  }
}

}  // namespace mpzero::io
