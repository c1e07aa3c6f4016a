#include "model/architecture/config_reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/words.hpp"

namespace mpzero::model {

using nlohmann::json;

ConfigReader::ConfigReader(const json& object, std::string source, std::string path)
    : object_(&object), source_(std::move(source)), path_(std::move(path)) {}

const json* ConfigReader::find(const std::string& key) {
  known_.push_back(key);
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

int64_t ConfigReader::integer(const std::string& key, std::optional<int64_t> fallback) {
  const json* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    missing(key);
  }
  // get<int64_t>() wraps around for larger values.
  const bool too_large =
      value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (value->is_number_integer() && !too_large) return value->get<int64_t>();
  if (value->is_number_float() && std::abs(value->get<double>()) < 1e15 &&
      value->get<double>() == std::floor(value->get<double>())) {
    return static_cast<int64_t>(value->get<double>());
  }
  wrong(key, *value, too_large ? "less than 2^63" : "an integer");
}

double ConfigReader::number(const std::string& key, std::optional<double> fallback) {
  const json* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    missing(key);
  }
  if (!value->is_number()) wrong(key, *value, "a number");
  return value->get<double>();
}

bool ConfigReader::boolean(const std::string& key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong(key, *value, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, std::optional<std::string> fallback) {
  const json* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    missing(key);
  }
  if (!value->is_string()) wrong(key, *value, "a string");
  return value->get<std::string>();
}

std::optional<ConfigReader> ConfigReader::section(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) wrong(key, *value, "an object");
  return ConfigReader(*value, source_, path_of(key));
}

void ConfigReader::harmless(std::initializer_list<const char*> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

bool ConfigReader::knows(const std::string& key) const {
  return std::find(known_.begin(), known_.end(), key) != known_.end();
}

void ConfigReader::only(const std::string& key, const json& accepted, const std::string& remedy) {
  const json* value = find(key);
  if (value == nullptr || *value == accepted) return;
  if (accepted.is_boolean() && !value->is_boolean()) wrong(key, *value, "true or false");
  if (accepted.is_number() && !value->is_number()) wrong(key, *value, "a number");
  throw_user_error("{}: {} {} is not supported; {}.", source_, path_of(key), value->dump(), remedy);
}

void ConfigReader::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (value.is_null() || knows(key)) continue;
    const std::optional<std::string> nearest = nearest_name(key, known_);
    throw_user_error("{}: unknown key {}; {}", source_, path_of(key),
                     nearest ? fmt::format("did you mean {}?", path_of(*nearest))
                             : "remove it if it does not affect the model's computation.");
  }
}

void ConfigReader::missing(const std::string& key) const {
  throw_user_error("{}: the key \"{}\" is missing; copy it from the model's Hugging Face config.json.", source_,
                   path_of(key));
}

void ConfigReader::wrong(const std::string& key, const json& value, const std::string& expected) const {
  throw_user_error("{}: {} is {}, but must be {}.", source_, path_of(key), value.dump(), expected);
}

}  // namespace mpzero::model
