#include "app/top/run_reader.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "app/flags/validation_data.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

// Of a line without an end, which is no line of a run.
constexpr size_t kLongestLine = size_t{4} << 20;
constexpr size_t kMostLosses = 20'000;

// Of a file that is missing, or no regular file: nothing.
std::optional<io::File> open_if_there(const fs::path& path) {
  try {
    return io::File::open_for_reading(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// An object; null for anything else.
json object_in(const std::string& line) {
  try {
    json object = parse_json(line, kLineLimits);
    return object.is_object() ? object : json();
  } catch (const JsonError&) {
    return {};
  }
}

void set(double& value, const json& object, const char* key) {
  if (object.contains(key) && object[key].is_number()) value = object[key].get<double>();
}
void set(int64_t& value, const json& object, const char* key) {
  if (object.contains(key) && object[key].is_number_integer()) value = object[key].get<int64_t>();
}
void set(std::string& value, const json& object, const char* key) {
  if (object.contains(key) && object[key].is_string()) value = object[key].get<std::string>();
}

// Whether an event names this run, or start, or none.
bool is_of(const json& event, const char* key, const std::string& value) {
  return !event.contains(key) || event[key] == value;
}

fs::path folder_of(const fs::path& run) { return fs::is_directory(run) ? run : run.parent_path(); }

}  // namespace

LineFollower::LineFollower(fs::path path, int64_t most_bytes) : path_(std::move(path)), most_bytes_(most_bytes) {}

std::vector<std::string> LineFollower::take() {
  const std::optional<io::File> file = open_if_there(path_);
  struct stat facts {};
  if (!file || ::fstat(file->descriptor(), &facts) != 0) return {};
  bool cut = false;
  if (offset_ < 0 || facts.st_ino != inode_ || facts.st_size < offset_) {
    offset_ = std::max<int64_t>(0, facts.st_size - most_bytes_);
    cut = offset_ > 0;
    rest_.clear();
    ++openings_;
  }
  inode_ = facts.st_ino;
  std::array<char, 65536> buffer{};
  std::vector<std::string> lines;
  ssize_t got = 0;
  while ((got = ::pread(file->descriptor(), buffer.data(), buffer.size(), offset_)) > 0) {
    offset_ += got;
    rest_.append(buffer.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      // The first line after a jump into the file is half of one.
      if (!std::exchange(cut, false)) lines.push_back(rest_.substr(begin, end - begin));
    }
    rest_.erase(0, begin);
    if (rest_.size() > kLongestLine) rest_.clear();
  }
  return lines;
}

RunReader::RunReader(const fs::path& run)
    : folder_(folder_of(run)),
      is_file_given_(!fs::is_directory(run)),
      // A start is read however long ago it was.
      events_(folder_ / "events.jsonl", /*most_bytes=*/std::numeric_limits<int64_t>::max()),
      metrics_(fs::is_directory(run) ? run / "metrics.jsonl" : run) {
  std::error_code error;
  const fs::path folder = folder_of(run);
  if (!fs::exists(folder / "events.jsonl", error) &&
      !fs::exists(fs::is_directory(run) ? run / "metrics.jsonl" : run, error)) {
    throw_user_error(
        "{} has neither events.jsonl nor metrics.jsonl: name the --checkpoint_dir of a run, its metrics file, or the "
        "number of its Slurm job.",
        run.string());
  }
  if (is_file_given_) io::File::open_for_reading(run);
}

const RunView& RunReader::update() {
  for (const std::string& line : events_.take()) take_event(line);
  choose_metrics();
  if (view_.metrics_file == "" && !is_file_given_) return view_;
  const int64_t openings = metrics_.openings();
  const std::vector<std::string> steps = metrics_.take();
  if (metrics_.openings() != openings) view_.losses.clear();
  for (const std::string& line : steps) take_step(line);
  return view_;
}

void RunReader::choose_metrics() {
  if (is_file_given_ || !view_.metrics_file || view_.metrics_file->empty()) return;
  // It is next to the events, wherever the folder is seen from here.
  const fs::path path = folder_ / fs::path(*view_.metrics_file).filename();
  if (path == metrics_.path()) return;
  metrics_ = LineFollower(path);
  view_.losses.clear();
}

void RunReader::take_event(const std::string& line) {
  const json event = object_in(line);
  std::string kind;
  if (event.is_null()) return;
  set(kind, event, "event");
  if (kind == "start") {
    std::string run;
    set(run, event, "run");
    if (run != view_.run) {
      view_ = {};
      view_.run = run;
    }
    ++view_.starts;
    view_.start.clear();
    set(view_.start, event, "start");
    view_.status = view_.reason = view_.warning = "";
    set(view_.model, event, "model_type");
    set(view_.devices, event, "devices");
    set(view_.began, event, "began");
    set(view_.max_steps, event, "max_steps");
    set(view_.metrics_address, event, "metrics_address");
    set(view_.metrics_port, event, "metrics_port");
    view_.metrics_file.reset();
    if (event.contains("metrics_file") && event["metrics_file"].is_string()) {
      view_.metrics_file = event["metrics_file"].get<std::string>();
    }
    view_.hosts.clear();
    for (const json& host : event.value("hosts", json::array())) {
      if (host.is_string()) view_.hosts.push_back(host.get<std::string>());
    }
  } else if (!is_of(event, "run", view_.run)) {
    return;
  } else if (kind == "checkpoint") {
    set(view_.checkpoint_step, event, "step");
    set(view_.checkpoint_time, event, "time");
    set(view_.checkpoint_seconds, event, "seconds");
  } else if (kind == "warning") {
    set(view_.warning, event, "text");
  } else if (kind == "end" && is_of(event, "start", view_.start)) {
    set(view_.status, event, "status");
    set(view_.reason, event, "reason");
  }
}

void RunReader::take_step(const std::string& line) {
  const json step = object_in(line);
  if (step.is_null() || !step.contains("step")) return;
  std::string run;
  set(run, step, "run");
  if (!view_.run.empty() && !run.empty() && run != view_.run) return;
  set(view_.step, step, "step");
  set(view_.time, step, "time");
  set(view_.loss, step, "loss");
  set(view_.lr, step, "lr");
  set(view_.grad_norm, step, "grad_norm");
  set(view_.tokens_per_second, step, "tokens_per_second");
  set(view_.step_seconds, step, "step_seconds");
  if (step.contains("mfu") && step["mfu"].is_number()) view_.mfu = step["mfu"].get<double>();
  for (const char* part : {"forward", "backward", "exposed_communication", "optimizer", "data"}) {
    set(view_.parts[part], step, (std::string(part) + "_seconds").c_str());
  }
  for (const auto& [key, value] : step.items()) {
    const std::optional<std::string> set = validation_set_of(key);
    if (!set || !value.is_number()) continue;
    if (view_.validation_step != view_.step) view_.validation.clear();
    view_.validation[*set] = value.get<double>();
    view_.validation_step = view_.step;
  }
  if (const auto found = step.find("rank_seconds"); found != step.end() && found->is_array()) {
    view_.rank_seconds.clear();
    for (const json& seconds : *found) view_.rank_seconds.push_back(seconds.is_number() ? seconds.get<double>() : 0);
  }
  view_.losses.push_back(view_.loss);
  if (view_.losses.size() > kMostLosses) {
    view_.losses.erase(view_.losses.begin(), view_.losses.begin() + static_cast<std::ptrdiff_t>(kMostLosses / 2));
  }
}

}  // namespace mpzero
