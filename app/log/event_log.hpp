#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace mpzero {

// A JSON Lines file of what happens in a run besides its steps: its starts, checkpoints, warnings and ends. It is only
// appended to, so that it keeps what starts that were killed have written. One process writes it.
class EventLog {
 public:
  // Throws where it cannot be written, or is no regular file.
  explicit EventLog(std::filesystem::path path);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Appends {"event": `event`, "time": seconds since 1970} and `fields`, an object. Throws as throw_system_error.
  void write(std::string_view event, const nlohmann::ordered_json& fields);

 private:
  void append(std::string_view text);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace mpzero
