#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace mpzero::parallel {

// Returns the value of an environment variable, or std::nullopt if the variable is not set. Tests pass a function that
// returns fixed values.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

inline std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace mpzero::parallel
