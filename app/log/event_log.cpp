#include "app/log/event_log.hpp"

#include <nlohmann/json.hpp>

#include "base/text/times.hpp"

namespace mpzero {

void EventLog::write(std::string_view event, const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json line = {{"event", event}, {"time", seconds_since_1970()}};
  line.update(fields);
  JsonLines::write(line);
}

}  // namespace mpzero
