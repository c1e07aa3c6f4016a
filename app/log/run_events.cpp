#include "app/log/run_events.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEvents = "events.jsonl";
constexpr const char* kSummary = "summary.json";
constexpr int kIndent = 2;
// A step that takes so many times the median is a stall.
constexpr float kStall = 3;

int64_t stalls_in(std::vector<float> seconds) {
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::count_if(seconds.begin(), seconds.end(), [limit = kStall * *middle](float s) { return s > limit; });
}

}  // namespace

RunEvents::RunEvents(std::filesystem::path folder, std::string run_id, std::string start, const ordered_json& facts)
    : folder_(std::move(folder)), run_id_(std::move(run_id)), start_(std::move(start)), log_(folder_ / kEvents) {
  write("start", facts);
}

void RunEvents::count_step(double seconds, int64_t tokens) {
  ++totals_.steps;
  totals_.step_seconds += seconds;
  totals_.tokens += tokens;
  durations_.push_back(static_cast<float>(seconds));
}

void RunEvents::warning(const std::string& text) { write("warning", {{"text", text}}); }

void RunEvents::checkpoint(int64_t step, double seconds, int64_t bytes, double paused_seconds) {
  ordered_json fields = {{"step", step}, {"seconds", seconds}, {"bytes", bytes}, {"paused_seconds", paused_seconds}};
  fields.update(progress());
  write("checkpoint", fields);
}

std::string RunEvents::end(std::string_view status, std::string_view reason) {
  ordered_json fields = {{"status", status}, {"reason", reason}};
  fields.update(progress());
  write("end", fields);
  const RunTotals totals = totals_of(folder_ / kEvents, run_id_);
  ordered_json summary = {{"run", run_id_}, {"status", status}, {"reason", reason}};
  summary.update(to_json(totals));
  const std::string text = summary.dump(kIndent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  io::replace_text_file(folder_ / kSummary, text);
  return describe(totals, run_id_);
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

void RunEvents::write(std::string_view event, const ordered_json& fields) {
  ordered_json all = {{"run", run_id_}, {"start", start_}};
  all.update(fields);
  log_.write(event, all);
}

}  // namespace mpzero
