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

// Identifies one start of a run and the folder of its records.
struct StartRecord {
  std::filesystem::path folder;  // contains events.jsonl and summary.json
  std::string run_id;
  std::string start;
};

// Writes the events of one start to events.jsonl and the run's totals to summary.json, whose "status" is "running"
// until the end. Thread-safe. No call throws: `warn` gets one sentence if a file cannot be written.
class RunEvents {
 public:
  // `facts`, an object, describes the start. `warn` must not call this object.
  RunEvents(StartRecord record, const nlohmann::ordered_json& facts, JsonLines::Warn warn);

  // Counts a step of `seconds` with `tokens` training tokens.
  void count_step(double seconds, int64_t tokens);
  void warning(const std::string& text);
  // A checkpoint was saved in `seconds`; training paused for `paused_seconds` of them.
  void checkpoint(int64_t step, double seconds, int64_t bytes, double paused_seconds);
  // Waits until the events are on disk.
  void sync();
  // Ends the start as "finished", "stopped" or "failed": writes the summary and returns its log line. If the start has
  // already ended, writes nothing and returns an empty string.
  std::string end(std::string_view status, std::string_view reason);

  // Totals over the run's starts in `folder`/events.jsonl.
  static RunTotals totals_in(const std::filesystem::path& folder, const std::string& run_id);

 private:
  // Progress of the start, as fields of an event.
  nlohmann::ordered_json progress() const;
  void write(std::string_view event, const nlohmann::ordered_json& fields);

  const StartRecord record_;
  const JsonLines::Warn warn_;
  EventLog log_;
  std::mutex mutex_;  // guards the members below and the files
  bool has_ended_ = false;
  StartTotals totals_;
  std::vector<float> durations_;  // of the steps, in seconds
};

// RunEvents::end() from another process, for a start whose own process has died. Totals are those of its last event.
// Writes nothing and returns an empty string if the file lacks the start or already has its end.
std::string end_start(const StartRecord& record, std::string_view status, std::string_view reason,
                      const JsonLines::Warn& warn);

}  // namespace mpzero
