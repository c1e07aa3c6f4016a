#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/log/json_lines.hpp"
#include "app/log/run_totals.hpp"

namespace mpzero {

// Where one start of a run records what happens.
struct StartRecord {
  std::filesystem::path folder;  // of events.jsonl and summary.json
  std::string run_id;
  std::string start;
};

// The events of one start of a run, in events.jsonl, and the run's totals, in summary.json, whose is
// "running" until the end. Any thread may call it. No call throws: `warn` gets one sentence where a file cannot be
// written.
class RunEvents {
 public:
  // `facts`, an object, describes the start. `warn` must not call this object.
  RunEvents(StartRecord record, const nlohmann::ordered_json& facts, JsonLines::Warn warn);

  // A step has ended that took `seconds` and trained on so many tokens.
  void count_step(double seconds, int64_t tokens);
  void warning(const std::string& text);
  // A checkpoint has been saved: how long that took, and for how long of it training has paused.
  void checkpoint(int64_t step, double seconds, int64_t bytes, double paused_seconds);
  // Waits until the events are on disk.
  void sync();
  // The start ends: "finished", "stopped" or "failed". Writes the summary, and returns the line that says it. Empty,
  // and nothing is written, if it has ended already.
  std::string end(std::string_view status, std::string_view reason);

  // The totals of a run's starts that `folder`/events.jsonl has.
  static RunTotals totals_in(const std::filesystem::path& folder, const std::string& run_id);

 private:
  // What the start has done, as an event has it.
  nlohmann::ordered_json progress() const;
  void write(std::string_view event, const nlohmann::ordered_json& fields);

  const StartRecord record_;
  const JsonLines::Warn warn_;
  EventLog log_;
  std::mutex mutex_;  // guards those below, and what is written
  bool has_ended_ = false;
  StartTotals totals_;
  std::vector<float> durations_;  // of the steps, in seconds
};

// As RunEvents::end(), by another process: the one that records the start has died. The totals are those of the start's
// last event. Empty, and nothing is written, where the file has no such start, or its end.
std::string end_start(const StartRecord& record, std::string_view status, std::string_view reason,
                      const JsonLines::Warn& warn);

}  // namespace mpzero
