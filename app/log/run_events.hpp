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

// Identifies one attempt of a run and the folder of its records.
struct StartRecord {
  std::filesystem::path folder;  // contains events.jsonl and summary.json
  std::string run_id;
  std::string start;
};

// Writes the events of one attempt to events.jsonl and the totals of the run to summary.json. The "status" in
// summary.json is "running" until the attempt ends. Thread-safe. Methods never throw; `warn` is called if a file cannot
// be written.
class RunEvents {
 public:
  // `facts`: object with the fields of the "start" event. `warn` must not call this object.
  RunEvents(StartRecord record, const nlohmann::ordered_json& facts, JsonLines::Warn warn);

  // Counts a step. `seconds`: duration. `tokens`: number of training tokens.
  void count_step(double seconds, int64_t tokens);
  void warning(const std::string& text);
  // Records a saved checkpoint. `seconds`: duration of the save. `paused_seconds`: time for which the save paused
  // training.
  void checkpoint(int64_t step, double seconds, int64_t bytes, double paused_seconds);
  // Waits until all events are on disk.
  void sync();
  // Records the end of the attempt with the status "finished", "stopped" or "failed", writes the summary, and returns a
  // log line with the totals. Returns an empty string without writing if the end is already recorded.
  std::string end(std::string_view status, std::string_view reason);

  // Returns the totals over all attempts of the run in `folder`/events.jsonl.
  static RunTotals totals_in(const std::filesystem::path& folder, const std::string& run_id);

 private:
  // Returns the progress of this attempt as fields of an event.
  nlohmann::ordered_json progress() const;
  void write(std::string_view event, const nlohmann::ordered_json& fields);

  const StartRecord record_;
  const JsonLines::Warn warn_;
  EventLog log_;
  std::mutex mutex_;  // guards the members below and the files
  bool has_ended_ = false;
  StartTotals totals_;
  std::vector<float> durations_;  // step durations in seconds
};

// Variant of RunEvents::end() for an attempt that died without recording its end. The totals are from the attempt's
// last event. Returns an empty string without writing if the file does not contain the start of the attempt or already
// contains its end.
std::string end_start(const StartRecord& record, std::string_view status, std::string_view reason,
                      const JsonLines::Warn& warn);

}  // namespace mpzero
