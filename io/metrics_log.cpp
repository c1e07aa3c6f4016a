#include "io/metrics_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/atomic_file.hpp"

namespace mpzero::io {
namespace {

// Whether a killed run may have left `line` behind as the first half of a step.
bool may_be_half_a_step(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\":";
  return line.substr(0, kBegin.size()) == kBegin.substr(0, line.size());
}

// What stands in a line; null where it is not JSON.
nlohmann::json parse_line(std::string_view line) {
  try {
    return parse_json(line, kLineLimits);
  } catch (const JsonError&) {
    return nullptr;
  }
}

// The lines of steps 1 .. steps_done by step, or nothing if the file is already exactly that.
std::optional<std::map<int64_t, std::string>> lines_to_keep(const std::filesystem::path& path, int64_t steps_done) {
  std::ifstream file(path);
  if (!file) throw_system_error("read metrics file", path, errno);
  std::map<int64_t, std::string> kept;
  bool unchanged = true;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const bool cut_off = file.eof();
    const nlohmann::json object = parse_line(line);
    const bool is_step = object.is_object() && object.contains("step") && object["step"].is_number_integer();
    if (!is_step && !(cut_off && may_be_half_a_step(line))) {
      throw_user_error("metrics file {} holds something else in line {}: give --metrics_file another name or remove it",
                       path.string(), number);
    }
    const int64_t step = is_step ? object["step"].get<int64_t>() : steps_done + 1;
    if (cut_off || step > steps_done || (!kept.empty() && step <= kept.rbegin()->first)) unchanged = false;
    if (step <= steps_done) kept[step] = line;
  }
  if (unchanged) return std::nullopt;
  return kept;
}

void write_all(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error("write metrics file", path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int open_to_append(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
  if (descriptor < 0) throw_system_error("write metrics file", path, errno);
  return descriptor;
}

void replace(const std::filesystem::path& path, const std::map<int64_t, std::string>& lines) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  const int descriptor = open_to_append(temporary, O_TRUNC);
  try {
    for (const auto& [step, line] : lines) write_all(descriptor, line + "\n", temporary);
    if (::fsync(descriptor) != 0) throw_system_error("write", temporary, errno);
  } catch (...) {
    ::close(descriptor);
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  ::close(descriptor);
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) throw_system_error("replace metrics file", path, error.value());
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, int64_t steps_done) : path_(std::move(path)) {
  std::error_code error;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), error);
  if (error) throw_system_error("make the folder of metrics file", path_, error.value());
  if (std::filesystem::is_directory(path_)) {
    throw_user_error("metrics file {} is a folder; name a file in it", path_.string());
  }
  if (std::filesystem::is_regular_file(path_)) {
    if (const auto lines = lines_to_keep(path_, steps_done)) replace(path_, *lines);
  }
  descriptor_ = open_to_append(path_, 0);
}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void MetricsLog::write(const StepMetrics& metrics) {
  nlohmann::ordered_json object = {{"step", metrics.step},
                                   {"loss", metrics.loss},
                                   {"lr", metrics.lr},
                                   {"grad_norm", metrics.grad_norm},
                                   {"tokens", metrics.tokens},
                                   {"tokens_per_second", metrics.tokens_per_second},
                                   {"step_seconds", metrics.step_seconds}};
  for (const auto& [name, value] : metrics.extra) object[name] = value;
  write_all(descriptor_, object.dump() + "\n", path_);
}

}  // namespace mpzero::io
