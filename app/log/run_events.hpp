#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/log/event_log.hpp"
#include "app/log/run_totals.hpp"

namespace mpzero {

// The events of one start of a run, in `folder`/events.jsonl, and the run's totals, in `folder`/summary.json. Its calls
// throw where a file cannot be written.
class RunEvents {
 public:
  // `facts`, an object, describes the start.
  RunEvents(std::filesystem::path folder, std::string run_id, std::string start, const nlohmann::ordered_json& facts);

  // A step has ended that took `seconds` and trained on so many tokens.
  void count_step(double seconds, int64_t tokens);
  void warning(const std::string& text);
  // A checkpoint has been saved: how long that took, and for how long of it training has paused.
  void checkpoint(int64_t step, double seconds, int64_t bytes, double paused_seconds);
  // The start ends: "finished", "stopped" or "failed". Writes the summary, and returns the line that says it.
  std::string end(std::string_view status, std::string_view reason);

  // The totals of a run's starts that `folder`/events.jsonl has.
  static RunTotals totals_in(const std::filesystem::path& folder, const std::string& run_id);

 private:
  // What the start has done, as an event has it.
  nlohmann::ordered_json progress() const;
  void write(std::string_view event, const nlohmann::ordered_json& fields);

  std::filesystem::path folder_;
  std::string run_id_;
  std::string start_;
  EventLog log_;
  StartTotals totals_;
  std::vector<float> durations_;  // of the steps, in seconds
};

}  // namespace mpzero
