#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mpzero {

// A JSON error. what() is a clause that omits the source, e.g. "key a.b appears twice; remove one of the two" or "line
// 2, column 3: not valid JSON, ...".
class JsonError final : public std::runtime_error {
 public:
  explicit JsonError(const std::string& problem, const std::string& place = "");

  // Returns "SOURCE: PROBLEM." or "SOURCE, PLACE: PROBLEM.".
  std::string about(std::string_view source) const;

 private:
  std::string problem_;
  std::string place_;  // line and column; may be empty
};

// Limits on the size and the nesting of a JSON text.
struct JsonLimits {
  size_t bytes;
  int depth = 64;  // levels of nested objects and arrays
};

// Limits for configuration files from users or transformers: config.json, ds_config.json.
inline constexpr JsonLimits kConfigurationLimits{.bytes = size_t{16} << 20};
// Limits for lines that mpzero wrote to a file or a connection.
inline constexpr JsonLimits kLineLimits{.bytes = size_t{4} << 20};

// Parses all of `text` as one JSON value (RFC 8259, without comments). Throws JsonError if the text exceeds `limits`,
// has a syntax error (reported with line and column), contains a number that overflows a double, or repeats a key in an
// object (parsers disagree on the value of a repeated key).
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits);

// Parses the text of a user's file with parse_json(), but throws UserError with the message JsonError::about(source)
// instead of JsonError.
nlohmann::json parse_user_json(std::string_view text, const std::string& source, const JsonLimits& limits);

// Returns the content of a file, or its first limits.bytes + 1 bytes if the file is larger, for parse_user_json().
// Returns std::nullopt if the file cannot be read. Throws UserError if the path is a FIFO, a socket or a device.
std::optional<std::string> read_json_text(const std::filesystem::path& path, const JsonLimits& limits);

}  // namespace mpzero
