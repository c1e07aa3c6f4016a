#include "app/watchdog/host_board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/text/times.hpp"

namespace mpzero {
namespace {

constexpr size_t kChannels = 8;
constexpr double kNanoseconds = 1e9;

double seconds_since(int64_t then) { return static_cast<double>(monotonic_nanoseconds() - then) / kNanoseconds; }

// Returns a lock on byte `number` of the file. The kernel releases it when the process that holds it ends.
struct flock lock_of(int number) {
  return {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1, .l_pid = 0};
}

}  // namespace

// A new file is zero-filled, which is the initial state.
struct alignas(64) HostBoard::Line {
  struct Channel {
    std::atomic<int64_t> queued, started, completed;
    std::atomic<int32_t> first, count, stride;
  };
  std::atomic<int64_t> pid;  // 0: process has not started yet
  std::atomic<int64_t> rank, step, progress;
  std::atomic<int64_t> moved_at, turned_at;  // monotonic_nanoseconds()
  std::atomic<int32_t> phase;
  std::atomic<int32_t> ended;  // 1 + exit status; 0: not ended
  std::atomic<int32_t> num_channels;
  std::array<Channel, kChannels> channels;
};

struct alignas(64) HostBoard::Header {
  std::atomic<int32_t> stop_is_claimed, failure_is_claimed;
};

HostBoard::Line& HostBoard::line(int number) const { return reinterpret_cast<Line*>(memory_ + 1)[number]; }

bool HostBoard::is_alive(int number) const {
  struct flock lock = lock_of(number);
  return fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

HostBoard::HostBoard(const std::string& start, int ranks, int own, int rank, const std::filesystem::path& folder)
    : path_(folder / fmt::format("mpzero-{}-{}", getuid(), start)), ranks_(ranks), own_(own) {
  static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);
  bytes_ = sizeof(Header) + sizeof(Line) * static_cast<size_t>(ranks);
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat status {};
  int error = file_ < 0 || fstat(file_, &status) != 0 ? errno : status.st_uid != getuid() ? EPERM : 0;
  // Without allocation, writes to a full file system would raise SIGBUS.
  if (error == 0) error = posix_fallocate(file_, 0, static_cast<off_t>(bytes_));
  struct flock lock = lock_of(own);
  if (error == 0 && fcntl(file_, F_OFD_SETLK, &lock) != 0) error = errno;
  if (error != 0) problem_ = fmt::format("cannot use {}: {}", path_.string(), std::strerror(error));
  const int flags = MAP_SHARED | (error == 0 ? 0 : MAP_ANONYMOUS);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, error == 0 ? file_ : -1, 0);
  if (memory == MAP_FAILED) throw_failure("cannot map {}: {}", path_.string(), std::strerror(errno));
  memory_ = static_cast<Header*>(memory);
  Line& mine = this->own();
  mine.rank = rank;
  mine.moved_at = mine.turned_at = monotonic_nanoseconds();
  mine.pid = getpid();
}

HostBoard::~HostBoard() {
  munmap(memory_, bytes_);
  if (file_ >= 0) close(file_);
}

void HostBoard::remove_name() const { unlink(path_.c_str()); }

void HostBoard::write(const RankActivity::Report& report, const std::vector<parallel::ChannelRecord>& channels) {
  Line& line = own();
  const int64_t time = monotonic_nanoseconds();
  line.moved_at = time - static_cast<int64_t>(report.idle * kNanoseconds);
  line.turned_at = time;
  line.phase = static_cast<int32_t>(report.phase);
  line.step = report.step;
  line.progress = report.progress;
  const size_t count = std::min(channels.size(), kChannels);
  for (size_t i = 0; i < count; ++i) {
    Line::Channel& channel = line.channels.at(i);
    channel.queued = channels[i].queued;
    channel.started = channels[i].started;
    channel.completed = channels[i].completed;
    channel.first = channels[i].ranks.first;
    channel.count = channels[i].ranks.count;
    channel.stride = channels[i].ranks.stride;
  }
  line.num_channels = static_cast<int32_t>(count);
}

void HostBoard::announce_end(int exit_status) { own().ended = exit_status + 1; }
bool HostBoard::claim_stop() { return memory_->stop_is_claimed.exchange(1) == 0; }
bool HostBoard::claim_failure() { return memory_->failure_is_claimed.exchange(1) == 0; }

std::vector<Neighbor> HostBoard::neighbors() const {
  std::vector<Neighbor> all;
  for (int i = 0; i < ranks_; ++i) {
    const Line& line = this->line(i);
    if (i == own_ || line.pid == 0) continue;
    Neighbor one{.rank = static_cast<int>(line.rank),
                 .pid = line.pid,
                 .alive = is_alive(i),
                 .exit_status = line.ended != 0 ? std::optional(line.ended - 1) : std::nullopt,
                 .activity = {.phase = static_cast<RunPhase>(static_cast<uint8_t>(line.phase)),
                              .step = line.step,
                              .progress = line.progress,
                              .idle = seconds_since(line.moved_at)},
                 .quiet = seconds_since(line.turned_at),
                 .channels = {}};
    for (size_t c = 0; c < static_cast<size_t>(line.num_channels); ++c) {
      const Line::Channel& channel = line.channels.at(c);
      one.channels.push_back({.name = {},
                              .ranks = {.first = channel.first, .count = channel.count, .stride = channel.stride},
                              .queued = channel.queued,
                              .started = channel.started,
                              .completed = channel.completed,
                              .last = {}});
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace mpzero
