#include "app/log/run_totals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/text/times.hpp"
#include "base/words.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostBytesOfALine = 1 << 20;
// Larger values are ignored, so that sums do not overflow.
constexpr uint64_t kMostCount = uint64_t{1} << 50;
constexpr double kMostSeconds = 1e10;

// One attempt of a run, according to the events read so far.
struct Start {
  std::optional<double> began, last;  // Unix time in seconds
  int64_t gpus = 0;
  int64_t steps_done = 0;  // steps before this attempt
  StartTotals totals;
};

// Returns 0 if the value is not a count.
int64_t count(const json& event, const char* key) {
  const auto found = event.find(key);
  const bool is_count = found != event.end() && found->is_number_unsigned() && found->get<uint64_t>() <= kMostCount;
  return is_count ? found->get<int64_t>() : 0;
}

std::optional<double> seconds(const json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return value >= 0 && value <= kMostSeconds ? std::optional(value) : std::nullopt;
}

bool is(const json& event, std::string_view name) {
  const auto found = event.find("event");
  return found != event.end() && *found == name;
}

void take(const json& event, Start& start) {
  if (const auto time = seconds(event, "time")) start.last = time;
  if (is(event, "start")) {
    start.began = seconds(event, "began");
    start.gpus = count(event, "gpus");
    start.steps_done = count(event, "steps_done");
  }
  if (is(event, "checkpoint")) ++start.totals.checkpoints;
  if (!event.contains("steps")) return;
  start.totals.steps = count(event, "steps");
  start.totals.step_seconds = seconds(event, "step_seconds").value_or(0);
  start.totals.tokens = count(event, "tokens");
  start.totals.stalls = count(event, "stalls");
}

// Formats an integer with thousands separators: "1,638,400".
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
  try {
    io::read_lines(path, [&](std::string_view line, bool) {
      if (line.size() > kMostBytesOfALine) return;
      const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_object() || !event.contains("run") || event["run"] != run_id) return;
      const auto start = event.find("start");
      if (start != event.end() && start->is_string()) take(event, starts[start->get<std::string>()]);
    });
  } catch (const Error&) {
    return {};
  }
  RunTotals totals;
  for (auto& [id, start] : starts) {
    // The clocks of hosts may differ.
    const double elapsed = start.began && start.last ? *start.last - *start.began : 0;
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
  std::string line = fmt::format(
      "Run {}: {}{}, {} tokens in {}; {:.0f}% of the time in steps ({:.0f} tokens/s), {}, {}", run_id,
      counted(totals.steps, "step"), after, with_commas(totals.tokens), duration_text(totals.elapsed_seconds),
      share * 100, tokens_per_second, counted(totals.checkpoints, "checkpoint"), counted(totals.starts - 1, "restart"));
  if (totals.stalls > 0) line += fmt::format(", {} longer than 3x the median", counted(totals.stalls, "step"));
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
