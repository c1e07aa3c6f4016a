#include "app/log/run_events.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEvents = "events.jsonl";
constexpr const char* kSummary = "summary.json";
constexpr int kIndent = 2;
// A step is a stall if it takes more than this many times the median of at least kFewestSteps steps.
constexpr float kStall = 3;
constexpr size_t kFewestSteps = 10;

int64_t stalls_in(std::vector<float> seconds) {
  if (seconds.size() < kFewestSteps) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::count_if(seconds.begin(), seconds.end(), [limit = kStall * *middle](float s) { return s > limit; });
}

void write_event(EventLog& log, const StartRecord& record, std::string_view event, const ordered_json& fields) {
  ordered_json all = {{"run", record.run_id}, {"start", record.start}};
  all.update(fields);
  log.write(event, all);
}

RunTotals write_summary(const StartRecord& record, std::string_view status, std::string_view reason,
                        const JsonLines::Warn& warn) {
  RunTotals totals = totals_of(record.folder / kEvents, record.run_id);
  ordered_json summary = {{"run", record.run_id}, {"status", status}, {"reason", reason}};
  summary.update(to_json(totals));
  const std::string text = summary.dump(kIndent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  try {
    // Do not sync: when a rank dies, the launcher kills the other ranks after about one second.
    io::replace_text_file(record.folder / kSummary, text, io::disk(), io::Synced::kNo);
  } catch (const Error& error) {
    warn(error.what());
  }
  return totals;
}

bool has(const nlohmann::json& event, const char* key, std::string_view value) {
  const auto found = event.find(key);
  return found != event.end() && *found == value;
}

// Presence of the "start" and "end" events of an attempt in events.jsonl.
struct Recorded {
  bool began = false, ended = false;
};
Recorded recorded(const StartRecord& record) {
  Recorded found;
  try {
    io::read_lines(record.folder / kEvents, [&](std::string_view line, bool) {
      const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object() || !has(event, "run", record.run_id) || !has(event, "start", record.start)) return;
      found.began = true;
      found.ended = found.ended || has(event, "event", "end");
    });
  } catch (const Error&) {
    return {};
  }
  return found;
}

}  // namespace

RunEvents::RunEvents(StartRecord record, const ordered_json& facts, JsonLines::Warn warn)
    : record_(std::move(record)), warn_(std::move(warn)), log_(record_.folder / kEvents, warn_) {
  write("start", facts);
  write_summary(record_, "running", "", warn_);
}

void RunEvents::count_step(double seconds, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  ++totals_.steps;
  totals_.step_seconds += seconds;
  totals_.tokens += tokens;
  durations_.push_back(static_cast<float>(seconds));
}

void RunEvents::warning(const std::string& text) {
  const std::lock_guard lock(mutex_);
  write("warning", {{"text", text}});
}

void RunEvents::checkpoint(int64_t step, double seconds, int64_t bytes, double paused_seconds) {
  const std::lock_guard lock(mutex_);
  ordered_json fields = {{"step", step}, {"seconds", seconds}, {"bytes", bytes}, {"paused_seconds", paused_seconds}};
  fields.update(progress());
  write("checkpoint", fields);
}

void RunEvents::sync() {
  const std::lock_guard lock(mutex_);
  log_.sync();
}

std::string RunEvents::end(std::string_view status, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  // If the run fails, another rank may already have recorded the end.
  if (std::exchange(has_ended_, true) || recorded(record_).ended) return "";
  ordered_json fields = {{"status", status}, {"reason", reason}};
  fields.update(progress());
  write("end", fields);
  return describe(write_summary(record_, status, reason, warn_), record_.run_id);
}

RunTotals RunEvents::totals_in(const std::filesystem::path& folder, const std::string& run_id) {
  return totals_of(folder / kEvents, run_id);
}

ordered_json RunEvents::progress() const {
  return {{"steps", totals_.steps},
          {"tokens", totals_.tokens},
          {"step_seconds", totals_.step_seconds},
          {"stalls", stalls_in(durations_)}};
}

void RunEvents::write(std::string_view event, const ordered_json& fields) { write_event(log_, record_, event, fields); }

std::string end_start(const StartRecord& record, std::string_view status, std::string_view reason,
                      const JsonLines::Warn& warn) {
  const Recorded found = recorded(record);
  if (!found.began || found.ended) return "";
  EventLog log(record.folder / kEvents, warn);
  write_event(log, record, "end", {{"status", status}, {"reason", reason}});
  return describe(write_summary(record, status, reason, warn), record.run_id);
}

}  // namespace mpzero
