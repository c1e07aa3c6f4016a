#include "app/log/metrics_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/words.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {
namespace {

constexpr const char* kRunKey = "run";

// Returns true if `line` may have been truncated when a run died.
bool may_be_half_a_step(std::string_view line) {
  constexpr std::string_view kBegin = "{\"step\":";
  return line.substr(0, kBegin.size()) == kBegin.substr(0, line.size());
}

// Returns the object in a line; null if the line is not JSON.
nlohmann::json parse_line(std::string_view line) {
  try {
    return parse_json(line, kLineLimits);
  } catch (const JsonError&) {
    return nullptr;
  }
}

struct Line {
  std::string text;
  std::optional<int64_t> step;
  std::string run_id;    // empty if the line has no run id
  bool is_mark = false;  // marks missing lines
  bool is_damaged = false;
  bool has_end = true;
};

Line read_line(std::string text, bool has_end) {
  Line line;
  line.text = std::move(text);
  line.has_end = has_end;
  const nlohmann::json object = parse_line(line.text);
  if (!object.is_object()) {
    line.is_damaged = has_end || !may_be_half_a_step(line.text);
  } else if (const auto step = object.find("step"); step != object.end() && step->is_number_integer()) {
    line.step = step->get<int64_t>();
    if (object.contains(kRunKey) && object[kRunKey].is_string()) line.run_id = object[kRunKey].get<std::string>();
  } else {
    line.is_mark = object.contains("event") && object["event"] == "gap";
    line.is_damaged = !line.is_mark;
  }
  return line;
}

std::vector<Line> read_lines(const std::filesystem::path& path) {
  std::vector<Line> lines;
  io::read_lines(path,
                 [&](std::string_view line, bool has_end) { lines.push_back(read_line(std::string(line), has_end)); });
  return lines;
}

// Lines to keep from an old file.
struct Content {
  std::map<int64_t, std::string> kept;  // by step; the owner's lines of steps 1 to steps_done
  bool unchanged = true;                // the file contains no other lines
  bool has_others = false;              // the file contains lines of another run
  int64_t damaged = 0;                  // number of damaged lines
};

Content sort_lines(const std::vector<Line>& lines, int64_t steps_done, const MetricsOwner& owner) {
  const bool takes_unnamed = owner.began_without_id || std::any_of(lines.begin(), lines.end(), [&](const Line& line) {
                               return line.run_id == owner.run_id;
                             });
  Content content;
  std::string marks;  // marks of missing lines since the last step
  for (const Line& line : lines) {
    if (line.is_mark) {
      marks += line.text + "\n";
      continue;
    }
    if (line.is_damaged) ++content.damaged;
    const bool own = line.run_id == owner.run_id || (line.run_id.empty() && takes_unnamed);
    if (line.step && !own) content.has_others = true;
    const bool keeps = line.step && own && *line.step <= steps_done;
    if (!keeps || !line.has_end || (!content.kept.empty() && *line.step <= content.kept.rbegin()->first)) {
      content.unchanged = false;
    }
    if (keeps) content.kept[*line.step] = std::exchange(marks, {}) + line.text;
  }
  if (!marks.empty()) content.unchanged = false;
  return content;
}

// Creates a hard link to `path` with the first unused name "metrics.WORD-N.jsonl", or renames the file on file systems
// without hard links. Returns the new name.
std::filesystem::path keep_aside(const std::filesystem::path& path, std::string_view word) {
  std::filesystem::path aside;
  std::error_code error;
  for (int n = 1; aside.empty() || std::filesystem::exists(aside, error); ++n) {
    aside = path;
    aside.replace_filename(fmt::format("{}.{}-{}{}", path.stem().string(), word, n, path.extension().string()));
  }
  std::filesystem::create_hard_link(path, aside, error);
  if (error) std::filesystem::rename(path, aside, error);
  if (error) io::throw_system_error("create " + aside.string() + " from metrics file", path, error.value());
  return aside;
}

// Returns the new content of the file; std::nullopt if unchanged. Marks replace missing steps after the first step.
std::optional<std::string> text_of(const Content& content, int64_t steps_done) {
  bool changed = !content.unchanged;
  std::string text;
  int64_t last = content.kept.empty() ? steps_done : content.kept.begin()->first;
  const auto mark_until = [&](int64_t step) {
    if (step - last < 2) return;
    text += gap_mark(step - last - 1).dump() + "\n";
    changed = true;
  };
  for (const auto& [step, line] : content.kept) {
    const bool is_marked = line.find('\n') != std::string::npos;
    if (!is_marked) mark_until(step);
    text += line + "\n";
    last = step;
  }
  mark_until(steps_done + 1);
  return changed ? std::optional(text) : std::nullopt;
}

// Removes all lines except the owner's lines of steps 1 to `steps_done`. Returns warnings about damaged lines and lines
// of other runs.
std::vector<std::string> shorten(const std::filesystem::path& path, int64_t steps_done, const MetricsOwner& owner) {
  const Content content = sort_lines(read_lines(path), steps_done, owner);
  const std::optional<std::string> text = text_of(content, steps_done);
  std::vector<std::string> remarks;
  std::filesystem::path aside;
  if (content.damaged > 0) {
    aside = keep_aside(path, "damaged");
    remarks.push_back(fmt::format("{} contains {} that cannot be parsed; the file was renamed to {}", path.string(),
                                  counted(content.damaged, "line"), aside.string()));
  } else if (content.has_others) {
    aside = keep_aside(path, "old");
    remarks.push_back(
        fmt::format("{} contains steps of another run and was renamed to {}", path.string(), aside.string()));
  }
  if (!text) return remarks;
  try {
    io::replace_text_file(path, *text);
  } catch (...) {
    // Restore the original file name.
    std::error_code ignored;
    if (!aside.empty() && std::filesystem::exists(path, ignored)) {
      std::filesystem::remove(aside, ignored);
    } else if (!aside.empty()) {
      std::filesystem::rename(aside, path, ignored);
    }
    throw;
  }
  return remarks;
}

void make_folder_of(const std::filesystem::path& path) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) io::throw_system_error("create the parent folder of metrics file", path, error.value());
}

}  // namespace

void check_metrics_file(const std::filesystem::path& path) {
  make_folder_of(path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw_user_error("metrics file {} is a folder; pass a file name", path.string());
  }
  // O_NONBLOCK: opening a FIFO without a reader fails.
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0) io::throw_system_error("write metrics file", path, errno);
  ::close(descriptor);
}

void check_is_for_metrics(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  // A crash may leave a file of NUL bytes, which is accepted.
  bool has_metrics = false, is_void = true;
  try {
    io::read_lines(path, [&](std::string_view text, bool has_end) {
      if (has_metrics) return;
      const Line line = read_line(std::string(text), has_end);
      has_metrics = line.step || line.is_mark || !line.is_damaged;
      is_void = is_void && text.find_first_not_of('\0') == std::string_view::npos;
    });
  } catch (const Error&) {
    return;  // MetricsLog reports this error
  }
  if (has_metrics || is_void) return;
  throw_user_error("{} is not a metrics file; pass a different --metrics_file or remove the file", path.string());
}

MetricsLog::MetricsLog(const std::filesystem::path& path, int64_t steps_done, MetricsOwner owner,
                       const JsonLines::Warn& warn)
    : owner_(std::move(owner)) {
  try {
    make_folder_of(path);
    if (std::filesystem::is_regular_file(path)) {
      for (const std::string& remark : shorten(path, steps_done, owner_)) warn(remark);
    }
  } catch (const std::exception& error) {
    warn(fmt::format("{}; appending to the file", error.what()));
  }
  lines_.emplace(path, warn);
}

void MetricsLog::write(nlohmann::ordered_json step) {
  if (!owner_.run_id.empty()) step[kRunKey] = owner_.run_id;
  lines_->write(step);
}

}  // namespace mpzero
