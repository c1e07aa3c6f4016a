#include "app/log/run_totals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/text/times.hpp"
#include "base/words.hpp"

namespace mpzero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMostBytesOfALine = 1 << 20;
// Of steps, tokens, and seconds. A double has all integers up to there.
constexpr double kMost = 1e15;

// One start of a run, as far as its events have been read.
struct Start {
  double began = 0;
  double last = 0;
  int64_t gpus = 0;
  int64_t steps_done = 0;  // before it
  StartTotals totals;
};

// 0 for what is no count and no time of a run.
template <typename T>
T number(const json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number()) return T{};
  const auto value = found->get<double>();
  return value >= 0 && value <= kMost ? static_cast<T>(value) : T{};
}

void take(const json& event, Start& start) {
  start.last = number<double>(event, "time");
  const auto kind = event.find("event");
  const bool is_text = kind != event.end() && kind->is_string();
  if (is_text && *kind == "start") {
    start.began = number<double>(event, "began");
    start.gpus = number<int64_t>(event, "gpus");
    start.steps_done = number<int64_t>(event, "steps_done");
  }
  if (is_text && *kind == "checkpoint") ++start.totals.checkpoints;
  if (!event.contains("steps")) return;
  start.totals.steps = number<int64_t>(event, "steps");
  start.totals.step_seconds = number<double>(event, "step_seconds");
  start.totals.tokens = number<int64_t>(event, "tokens");
  start.totals.stalls = number<int64_t>(event, "stalls");
}

// "1,638,400".
std::string with_commas(int64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

}  // namespace

StartTotals& StartTotals::operator+=(const StartTotals& other) {
  elapsed_seconds += other.elapsed_seconds;
  steps += other.steps;
  step_seconds += other.step_seconds;
  tokens += other.tokens;
  checkpoints += other.checkpoints;
  stalls += other.stalls;
  return *this;
}

RunTotals totals_of(const std::filesystem::path& path, const std::string& run_id) {
  std::map<std::string, Start> starts;
  // Of a FIFO there is no end.
  if (std::error_code ignored; !std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.size() > kMostBytesOfALine) continue;
    const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || !event.contains("run") || event["run"] != run_id) continue;
    const auto start = event.find("start");
    if (start != event.end() && start->is_string()) take(event, starts[start->get<std::string>()]);
  }
  RunTotals totals;
  for (auto& [id, start] : starts) {
    // Clocks of different hosts differ, and the line of the start may be lost.
    const double elapsed = start.began > 0 ? start.last - start.began : 0;
    start.totals.elapsed_seconds = std::max({0.0, elapsed, start.totals.step_seconds});
    totals += start.totals;
    totals.after_step = totals.starts == 0 ? start.steps_done : std::min(totals.after_step, start.steps_done);
    ++totals.starts;
    totals.gpu_seconds += start.totals.elapsed_seconds * static_cast<double>(start.gpus);
  }
  return totals;
}

std::string describe(const RunTotals& totals, const std::string& run_id) {
  const double tokens_per_second =
      totals.step_seconds > 0 ? static_cast<double>(totals.tokens) / totals.step_seconds : 0.0;
  const double share = totals.elapsed_seconds > 0 ? totals.step_seconds / totals.elapsed_seconds : 0.0;
  const std::string after = totals.after_step > 0 ? fmt::format(" after step {}", totals.after_step) : "";
  std::string line = fmt::format("Run {}: {}{} in {}, {} tokens, {:.0f} tokens/s; {:.0f}% of the time in steps, {}, {}",
                                 run_id, counted(totals.steps, "step"), after, duration_text(totals.elapsed_seconds),
                                 with_commas(totals.tokens), tokens_per_second, share * 100,
                                 counted(totals.checkpoints, "checkpoint"), counted(totals.starts - 1, "restart"));
  if (totals.stalls > 0) line += ", " + counted(totals.stalls, "stall");
  if (totals.gpu_seconds > 0) line += fmt::format(", {:.2f} GPU hours", totals.gpu_seconds / 3600);
  return line;
}

ordered_json to_json(const RunTotals& totals) {
  return {{"starts", totals.starts},
          {"after_step", totals.after_step},
          {"elapsed_seconds", totals.elapsed_seconds},
          {"steps", totals.steps},
          {"tokens", totals.tokens},
          {"tokens_per_second",
           totals.step_seconds > 0 ? ordered_json(static_cast<double>(totals.tokens) / totals.step_seconds) : nullptr},
          {"step_seconds", totals.step_seconds},
          {"checkpoints", totals.checkpoints},
          {"stalls", totals.stalls},
          {"gpu_hours", totals.gpu_seconds / 3600}};
}

}  // namespace mpzero
