#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mpzero {

// Appends objects to a JSON Lines file without buffering. Only one process may write to the file.
//
// Methods never throw. While the file cannot be opened or written, lines are lost and training continues. `warn` is
// called when writes start to fail and when the file is writable again. Lost lines are marked by
//   {"event": "gap", "lines": number of lost lines, "time": Unix time in seconds}
class JsonLines {
 public:
  using Warn = std::function<void(const std::string&)>;
  JsonLines(std::filesystem::path path, Warn warn);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Non-finite values are written as null; bytes that are not UTF-8 are replaced.
  void write(const nlohmann::ordered_json& object);
  // Waits until all lines are on disk. Reopens the path if the file was replaced, or if the file was removed and the
  // folder still exists.
  void sync();

 private:
  // Return 0 on success, or an errno.
  int open();
  int append(std::string_view text);
  void fail(int error);

  std::filesystem::path path_;
  Warn warn_;
  int descriptor_ = -1;
  bool torn_ = false;  // the file does not end in a newline
  bool failing_ = false;
  int64_t lost_ = 0;  // number of lines lost since writes began to fail
};

// Event log of a run. The log is append-only, so that the events of killed processes are kept.
class EventLog : private JsonLines {
 public:
  using JsonLines::JsonLines;
  using JsonLines::sync;

  // Appends {"event": `event`, "time": Unix time in seconds}, merged with the object `fields`.
  void write(std::string_view event, const nlohmann::ordered_json& fields);
};

// Returns the "gap" object for a number of lost lines.
nlohmann::ordered_json gap_mark(int64_t lines);

}  // namespace mpzero
