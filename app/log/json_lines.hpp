#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mpzero {

// Appends to a JSON Lines file, one object per line, without buffering. Only one process may write the file.
//
// No call throws: while the file cannot be opened or written, lines are lost and training continues. `warn` gets one
// sentence when this starts and one when it ends. A gap of lost lines is marked by
//   {"event": "gap", "lines": number of lost lines, "time": seconds since 1970}
class JsonLines {
 public:
  using Warn = std::function<void(const std::string&)>;
  JsonLines(std::filesystem::path path, Warn warn);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Non-finite values are written as null; bytes that are not UTF-8 are replaced.
  void write(const nlohmann::ordered_json& object);
  // Waits until the lines are on disk. Reopens the path if the file was replaced, or was removed and its folder still
  // exists.
  void sync();

 private:
  // These return 0 or the errno.
  int open();
  int append(std::string_view text);
  void fail(int error);

  std::filesystem::path path_;
  Warn warn_;
  int descriptor_ = -1;
  bool torn_ = false;  // the file does not end in a newline
  bool failing_ = false;
  int64_t lost_ = 0;  // lost since writes began to fail
};

// Events of a run besides its steps: starts, checkpoints, warnings and ends. Append-only, so events of killed starts
// are kept.
class EventLog : private JsonLines {
 public:
  using JsonLines::JsonLines;
  using JsonLines::sync;

  // Appends {"event": `event`, "time": seconds since 1970} and `fields`, an object.
  void write(std::string_view event, const nlohmann::ordered_json& fields);
};

// Marks the place of lost lines.
nlohmann::ordered_json gap_mark(int64_t lines);

}  // namespace mpzero
