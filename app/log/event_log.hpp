#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "app/log/json_lines.hpp"

namespace mpzero {

// What happens in a run besides its steps: its starts, checkpoints, warnings and ends. It is only appended to, so that
// it keeps what starts that were killed have written.
class EventLog : private JsonLines {
 public:
  using JsonLines::JsonLines;
  using JsonLines::sync;

  // Appends {"event": `event`, "time": seconds since 1970} and `fields`, an object.
  void write(std::string_view event, const nlohmann::ordered_json& fields);
};

}  // namespace mpzero
