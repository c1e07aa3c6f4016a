#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mpzero {

// What is wrong with a JSON text. what() is a clause without the text's name, such as "key a.b appears twice; remove
// one of the two" or "line 2, column 3: not valid JSON, …".
class JsonError final : public std::runtime_error {
 public:
  explicit JsonError(const std::string& problem, const std::string& place = "");

  // "SOURCE: PROBLEM." or "SOURCE, PLACE: PROBLEM.".
  std::string about(std::string_view source) const;

 private:
  std::string problem_;
  std::string place_;  // in the text; empty: the full text
};

// Limits for a JSON text. mpzero does not read longer or more deeply nested texts.
struct JsonLimits {
  size_t bytes;
  int depth = 64;  // objects and arrays inside each other
};

// For files that a person or transformers writes: config.json, ds_config.json.
inline constexpr JsonLimits kConfigurationLimits{.bytes = size_t{16} << 20};
// For one line, written by mpzero, of a file or a connection.
inline constexpr JsonLimits kLineLimits{.bytes = size_t{4} << 20};

// Parses all of `text` as one JSON value (RFC 8259, no comments). Throws JsonError for text beyond `limits`, bad syntax
// (with line and column), a number that does not fit into a double, and a key that appears twice in one object, because
// readers disagree on which of the two counts.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits);

// The same for a file that the user writes. Throws UserError with JsonError::about(source).
nlohmann::json parse_user_json(std::string_view text, const std::string& source, const JsonLimits& limits);

// The file as text for parse_user_json, cut one byte after the limit if it is longer; std::nullopt if it cannot be
// read. Throws UserError if it is a FIFO, a socket or a device.
std::optional<std::string> read_json_text(const std::filesystem::path& path, const JsonLimits& limits);

}  // namespace mpzero
