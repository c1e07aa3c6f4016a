#include "app/log/metrics_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "app/health/cast_ranges.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

constexpr const char* kRunKey = "run";

// Whether `line` may be an incomplete line that a killed run has left.
bool may_be_half_a_step(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\":";
  return line.substr(0, kBegin.size()) == kBegin.substr(0, line.size());
}

// The object in a line; null if it is not JSON.
nlohmann::json parse_line(std::string_view line) {
  try {
    return parse_json(line, kLineLimits);
  } catch (const JsonError&) {
    return nullptr;
  }
}

struct Line {
  std::string text;
  std::optional<int64_t> step;  // std::nullopt: an incomplete line
  std::string run_id;           // empty: none is given
  bool has_end = true;
};

std::vector<Line> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) io::throw_system_error("read metrics file", path, errno);
  std::vector<Line> lines;
  for (Line line; std::getline(file, line.text); lines.push_back(std::move(line)), line = {}) {
    line.has_end = !file.eof();
    const nlohmann::json object = parse_line(line.text);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer()) {
      line.step = object["step"].get<int64_t>();
      if (object.contains(kRunKey) && object[kRunKey].is_string()) line.run_id = object[kRunKey].get<std::string>();
    } else if (line.has_end || !may_be_half_a_step(line.text)) {
      throw_user_error(
          "metrics file {} has something other than metrics in line {}: choose another --metrics_file or remove the "
          "file",
          path.string(), lines.size() + 1);
    }
  }
  return lines;
}

// The content to keep from an old file.
struct Content {
  std::map<int64_t, std::string> kept;  // the owner's lines of steps 1 .. steps_done
  bool unchanged = true;                // nothing else is in the file
  bool has_others = false;              // lines of another run
};

Content sort_lines(const std::vector<Line>& lines, int64_t steps_done, const MetricsOwner& owner) {
  const bool takes_unnamed = owner.began_without_id || std::any_of(lines.begin(), lines.end(), [&](const Line& line) {
                               return line.run_id == owner.run_id;
                             });
  Content content;
  for (const Line& line : lines) {
    const bool own = line.run_id == owner.run_id || (line.run_id.empty() && takes_unnamed);
    // An incomplete line does not say which run wrote it.
    if (line.step && !own) content.has_others = true;
    const bool keeps = line.step && own && *line.step <= steps_done;
    if (!keeps || !line.has_end || (!content.kept.empty() && *line.step <= content.kept.rbegin()->first)) {
      content.unchanged = false;
    }
    if (keeps) content.kept[*line.step] = line.text;
  }
  return content;
}

// Renames `path` to the first free name.
std::filesystem::path keep_aside(const std::filesystem::path& path) {
  std::filesystem::path aside;
  std::error_code error;
  for (int n = 1; aside.empty() || std::filesystem::exists(aside, error); ++n) {
    aside = path;
    aside.replace_filename(fmt::format("{}.old-{}{}", path.stem().string(), n, path.extension().string()));
  }
  std::filesystem::rename(path, aside, error);
  if (error) io::throw_system_error("rename to " + aside.string() + " the metrics file", path, error.value());
  return aside;
}

void write_all(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) io::throw_system_error("write metrics file", path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int open_to_append(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
  if (descriptor < 0) io::throw_system_error("write metrics file", path, errno);
  return descriptor;
}

void replace(const std::filesystem::path& path, const std::map<int64_t, std::string>& lines) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  const int descriptor = open_to_append(temporary, O_TRUNC);
  try {
    for (const auto& [step, line] : lines) write_all(descriptor, line + "\n", temporary);
    if (::fsync(descriptor) != 0) io::throw_system_error("write", temporary, errno);
  } catch (...) {
    ::close(descriptor);
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  ::close(descriptor);
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) io::throw_system_error("replace metrics file", path, error.value());
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, int64_t steps_done, MetricsOwner owner)
    : path_(std::move(path)), owner_(std::move(owner)) {
  std::error_code error;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), error);
  if (error) io::throw_system_error("create the folder of metrics file", path_, error.value());
  if (std::filesystem::is_directory(path_)) {
    throw_user_error("metrics file {} is a folder; name a file in it", path_.string());
  }
  if (std::filesystem::is_regular_file(path_)) {
    const Content content = sort_lines(read_lines(path_), steps_done, owner_);
    if (content.has_others) kept_at_ = keep_aside(path_);
    if (!content.unchanged) replace(path_, content.kept);
  }
  descriptor_ = open_to_append(path_, 0);
}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)),
      owner_(std::move(other.owner_)),
      kept_at_(std::move(other.kept_at_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

void MetricsLog::write(const StepMetrics& metrics) {
  nlohmann::ordered_json object = {{"step", metrics.step},
                                   {"loss", metrics.loss},
                                   {"lr", metrics.lr},
                                   {"grad_norm", metrics.grad_norm},
                                   {"tokens", metrics.tokens},
                                   {"tokens_per_second", metrics.tokens_per_second},
                                   {"step_seconds", metrics.step_seconds},
                                   {"time", metrics.time}};
  if (!owner_.run_id.empty()) object[kRunKey] = owner_.run_id;
  for (const auto& [name, value] : metrics.extra) object[name] = value;
  if (!metrics.rank_seconds.empty()) object["rank_seconds"] = metrics.rank_seconds;
  if (!metrics.casts.empty()) object["fp8"] = to_json(metrics.casts);
  write_all(descriptor_, object.dump() + "\n", path_);
}

}  // namespace mpzero
