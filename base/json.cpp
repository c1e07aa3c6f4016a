#include "base/json.hpp"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_set>
#include <vector>

#include "base/error.hpp"

namespace mpzero {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 80;

// Formats a key for messages. Quotes and escapes keys that are not printable ASCII, and truncates long keys.
std::string shown(const std::string& key) {
  const bool plain =
      !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isgraph(c); });
  const std::string text = plain ? key : json(key).dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() > kLongestName ? text.substr(0, kLongestName) + "..." : text;
}

// Tracks the parser's open containers. Rejects excessive nesting and duplicate keys in an object. The depth is limited
// because functions that traverse the result are recursive.
class Watch {
 public:
  explicit Watch(int max_depth) : max_depth_(static_cast<size_t>(max_depth)) {}

  bool operator()(json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        containers_.push_back({.is_object = event == json::parse_event_t::object_start, .keys = {}, .current_key = {}});
        if (containers_.size() > max_depth_) {
          throw JsonError(fmt::format("JSON is nested deeper than {} levels; reduce the nesting", max_depth_));
        }
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        containers_.pop_back();
        break;
      case json::parse_event_t::key:
        enter(parsed.get_ref<const std::string&>());
        break;
      case json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  struct Container {
    bool is_object;
    std::unordered_set<std::string> keys;
    std::string current_key;
  };

  void enter(const std::string& key) {
    Container& object = containers_.back();
    object.current_key = key;
    if (object.keys.insert(key).second) return;
    std::vector<std::string> path;
    for (const Container& outer : containers_) {
      if (outer.is_object) path.push_back(shown(outer.current_key));
    }
    throw JsonError(fmt::format("key {} appears twice; remove one of the two", fmt::join(path, ".")));
  }

  size_t max_depth_;
  std::vector<Container> containers_;
};

// Returns the library's message without the position, e.g. "syntax error while parsing value - unexpected '}'".
std::string syntax_error_detail(const std::string& what) {
  const std::string marker = "syntax error while parsing ";
  const size_t begin = what.find(marker);
  return begin == std::string::npos ? "not readable as JSON" : what.substr(begin + marker.size());
}

// Removes the library's tag from "[json.exception.out_of_range.406] number overflow parsing '1e400'".
std::string without_library_tag(const std::string& what) {
  const size_t end = what.find("] ");
  return end == std::string::npos ? what : what.substr(end + 2);
}

JsonError syntax_error(std::string_view text, const json::parse_error& error) {
  const size_t end = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 1;
  const size_t line_break = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
  const size_t column = line_break == std::string_view::npos ? end + 1 : end - line_break;
  const std::string place = fmt::format("line {}, column {}", line, column);
  if (end < text.size() && (text[end] == '/' || text[end] == '#')) {
    return JsonError("not valid JSON: comments are not allowed; remove the comment", place);
  }
  return JsonError(fmt::format("not valid JSON, {}; check for a missing or trailing comma or quote there",
                               syntax_error_detail(error.what())),
                   place);
}

}  // namespace

JsonError::JsonError(const std::string& problem, const std::string& place)
    : std::runtime_error(place.empty() ? problem : place + ": " + problem), problem_(problem), place_(place) {}

std::string JsonError::about(std::string_view source) const {
  return fmt::format("{}{}{}: {}.", source, place_.empty() ? "" : ", ", place_, problem_);
}

json parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw JsonError(fmt::format("JSON exceeds the limit of {} bytes; use a smaller file", limits.bytes));
  }
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c); })) {
    throw JsonError("no JSON found; expected an object {...}");
  }
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw JsonError("UTF-16 is not supported; save the file as UTF-8");
  }
  Watch watch(limits.depth);
  try {
    return json::parse(text, [&](int, json::parse_event_t event, json& parsed) { return watch(event, parsed); });
  } catch (const json::parse_error& error) {
    throw syntax_error(text, error);
  } catch (const json::out_of_range& error) {
    throw JsonError(fmt::format("{}; use a number within the range of a double", without_library_tag(error.what())));
  }
}

json parse_user_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  try {
    return parse_json(text, limits);
  } catch (const JsonError& error) {
    throw UserError(error.about(source));
  }
}

std::optional<std::string> read_json_text(const std::filesystem::path& path, const JsonLimits& limits) {
  // A blocking open() of a FIFO would wait for a writer, and only one rank could read the data.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const bool is_socket = descriptor < 0 && errno == ENXIO;
  struct stat status {};
  if (descriptor < 0 && !is_socket) return std::nullopt;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(is_socket ? nullptr : ::fdopen(descriptor, "rb"), &std::fclose);
  if (!is_socket && (!file || ::fstat(descriptor, &status) != 0 || S_ISDIR(status.st_mode))) return std::nullopt;
  if (!S_ISREG(status.st_mode)) {
    throw UserError(fmt::format("{} is a FIFO, a socket or a device; use a regular file", path.string()));
  }
  constexpr size_t kPiece = size_t{64} << 10;
  std::string text;
  for (size_t got = 1; got > 0 && text.size() <= limits.bytes;) {
    const size_t begin = text.size();
    text.resize(std::min(begin + kPiece, limits.bytes + 1));
    got = std::fread(text.data() + begin, 1, text.size() - begin, file.get());
    text.resize(begin + got);
  }
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return text;
}

}  // namespace mpzero
