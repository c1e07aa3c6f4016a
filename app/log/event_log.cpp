#include "app/log/event_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/text/times.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero {

using nlohmann::ordered_json;

EventLog::EventLog(std::filesystem::path path) : path_(std::move(path)) {
  // Throws for a FIFO or a device: once a FIFO is full, a write to it waits for a reader.
  if (std::error_code ignored; std::filesystem::exists(path_, ignored)) io::File::open_for_reading(path_);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) io::throw_system_error("write event log", path_, errno);
  // A crash may have cut the last line.
  char last = '\n';
  const off_t size = ::lseek(descriptor_, 0, SEEK_END);
  if (size > 0 && ::pread(descriptor_, &last, 1, size - 1) == 1 && last != '\n') append("\n");
}

EventLog::~EventLog() { ::close(descriptor_); }

void EventLog::write(std::string_view event, const ordered_json& fields) {
  ordered_json line = {{"event", event}, {"time", seconds_since_1970()}};
  line.update(fields);
  // Names of files may be any bytes.
  append(line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

void EventLog::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) io::throw_system_error("write event log", path_, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace mpzero
