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

JsonLines::JsonLines(std::filesystem::path path, Warn warn) : path_(std::move(path)), warn_(std::move(warn)) {
  if (const int error = open(); error != 0) fail(error);
}

JsonLines::~JsonLines() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int JsonLines::open() {
  if (descriptor_ >= 0) return 0;
  // Nonblocking: a FIFO without a reader is an error, and a full one does not wait for its reader.
  constexpr int kFlags = O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  descriptor_ = ::open(path_.c_str(), O_RDWR | kFlags, 0666);
  if (descriptor_ < 0) return errno;
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return errno;
  if (S_ISFIFO(status.st_mode)) {  // opened for reading, too, it would always have a reader
    ::close(std::exchange(descriptor_, -1));
    return ENXIO;
  }
  // A crash may have cut the last line.
  char last = '\n';
  torn_ = S_ISREG(status.st_mode) && status.st_size > 0 && ::pread(descriptor_, &last, 1, status.st_size - 1) == 1 &&
          last != '\n';
  return 0;
}

int JsonLines::append(std::string_view text) {
  std::string whole;
  if (torn_) whole += '\n';
  whole += text;
  for (std::string_view rest = whole; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Its file may have been replaced, or be on a file system that was mounted again.
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
    text.insert(0, text_of({{"event", "gap"}, {"lines", lost_}, {"time", seconds_since_1970()}}));
  }
  int error = open();
  if (error == 0) error = append(text);
  if (error != 0) {
    ++lost_;
    fail(error);
  } else if (std::exchange(failing_, false)) {
    warn_(
        fmt::format("{} is written again; lines that are missing there: {}", path_.string(), std::exchange(lost_, 0)));
  }
}

void JsonLines::fail(int error) {
  if (std::exchange(failing_, true)) return;
  warn_(fmt::format("cannot write {}: {}; training continues, and lines will be missing there", path_.string(),
                    std::generic_category().message(error)));
}

void JsonLines::sync() {
  if (descriptor_ >= 0) ::fsync(descriptor_);
}

}  // namespace mpzero
