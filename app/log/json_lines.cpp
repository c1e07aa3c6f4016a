#include "app/log/json_lines.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/text/times.hpp"

namespace mpzero {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

ordered_json gap_mark(int64_t lines) { return {{"event", "gap"}, {"lines", lines}, {"time", seconds_since_1970()}}; }

JsonLines::JsonLines(std::filesystem::path path, Warn warn) : path_(std::move(path)), warn_(std::move(warn)) {
  if (const int error = open(); error != 0) fail(error);
}

JsonLines::~JsonLines() {
  if (lost_ > 0) warn_(fmt::format("{}: the last {} line(s) could not be written", path_.string(), lost_));
  if (descriptor_ >= 0) ::close(descriptor_);
}

int JsonLines::open() {
  if (descriptor_ >= 0) return 0;
  // O_NONBLOCK: opening a FIFO without a reader fails, and writing to a full FIFO does not block.
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | kFlags, 0666);
  if (descriptor_ < 0) return errno;
  torn_ = false;
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return 0;
  // A crash may have truncated the last line.
  const int reader = ::open(path_.c_str(), O_RDONLY | kFlags);
  char last = '\n';
  torn_ = reader >= 0 && ::pread(reader, &last, 1, status.st_size - 1) == 1 && last != '\n';
  if (reader >= 0) ::close(reader);
  return 0;
}

int JsonLines::append(std::string_view text) {
  std::string whole;
  if (torn_) whole += '\n';
  whole += text;
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  for (std::string_view rest = whole; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Write whole lines or nothing.
      if (rest.size() < whole.size() && size >= 0) [[maybe_unused]]
        const int ignored = ::ftruncate(descriptor_, size);
      // The file may have been replaced, or its file system remounted.
      ::close(std::exchange(descriptor_, -1));
      return error;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  torn_ = false;
  return 0;
}

void JsonLines::write(const ordered_json& object) {
  std::string text = text_of(object);
  if (lost_ > 0) {
    text.insert(0, text_of(gap_mark(lost_)));
  }
  int error = open();
  if (error == 0) error = append(text);
  if (error != 0) {
    ++lost_;
    fail(error);
  } else if (std::exchange(failing_, false)) {
    warn_(fmt::format("{} is writable again; {} line(s) were lost", path_.string(), std::exchange(lost_, 0)));
  }
}

void JsonLines::fail(int error) {
  if (std::exchange(failing_, true)) return;
  warn_(fmt::format("cannot write {}: {}; training continues without this file", path_.string(),
                    std::generic_category().message(error)));
}

void EventLog::write(std::string_view event, const ordered_json& fields) {
  ordered_json line = {{"event", event}, {"time", seconds_since_1970()}};
  line.update(fields);
  JsonLines::write(line);
}

void JsonLines::sync() {
  if (descriptor_ < 0) return;
  ::fsync(descriptor_);
  // If the folder was replaced, new lines go to the new folder.
  struct stat opened {};
  struct stat named {};
  std::error_code ignored;
  const bool replaced =
      ::stat(path_.c_str(), &named) == 0
          ? ::fstat(descriptor_, &opened) == 0 && (opened.st_dev != named.st_dev || opened.st_ino != named.st_ino)
          : errno == ENOENT && std::filesystem::is_directory(path_.parent_path(), ignored);
  if (!replaced) return;
  warn_(fmt::format("{} was replaced or removed; new lines go to a new file", path_.string()));
  ::close(std::exchange(descriptor_, -1));
}

}  // namespace mpzero
