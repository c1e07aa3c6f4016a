#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mpzero {

// An error in a JSON text. what() is a clause without the source's name, such as "key a.b appears twice; remove one of
// the two" or "line 2, column 3: not valid JSON, …".
class JsonError final : public std::runtime_error {
 public:
  explicit JsonError(const std::string& problem, const std::string& place = "");

  // "SOURCE: PROBLEM." or "SOURCE, PLACE: PROBLEM.".
  std::string about(std::string_view source) const;

 private:
  std::string problem_;
  std::string place_;  // in the text; empty: the error has no position
};

// Longer or more deeply nested JSON texts are rejected.
struct JsonLimits {
  size_t bytes;
  int depth = 64;  // nesting of objects and arrays
};

// For files written by users or transformers: config.json, ds_config.json.
inline constexpr JsonLimits kConfigurationLimits{.bytes = size_t{16} << 20};
// For one line that mpzero wrote to a file or connection.
inline constexpr JsonLimits kLineLimits{.bytes = size_t{4} << 20};

// Parses all of `text` as one JSON value (RFC 8259, no comments). Throws JsonError for text beyond `limits`, bad syntax
// (with line and column), a number that does not fit into a double, and a duplicate key in an object, because parsers
// disagree on its value.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits);

// The same for a user's file. Throws UserError with JsonError::about(source).
nlohmann::json parse_user_json(std::string_view text, const std::string& source, const JsonLimits& limits);

// Reads a file for parse_user_json, at most one byte past the limit; std::nullopt if it cannot be read. Throws
// UserError if it is a FIFO, a socket or a device.
std::optional<std::string> read_json_text(const std::filesystem::path& path, const JsonLimits& limits);

}  // namespace mpzero
