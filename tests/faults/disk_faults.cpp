// A library for LD_PRELOAD that makes a disk misbehave. It counts the calls on paths in one folder. At the n-th call of
// a kind the program gets an error or a short read or write, is killed, or is stopped until another process continues
// it.
//
//   MPZERO_FAULT_FOLDER   the folder; other calls are passed through
//   MPZERO_FAULT          KIND:NUMBER:ACTION[:LAST], e.g. write:3:28, any:7:kill, write:3:28:9 (at the calls 3 to 9),
//                         lock:1:38:on (at every later call), or several separated by commas; empty: only count
//   MPZERO_FAULT_PATH     only calls whose path contains this text count and fail
//   MPZERO_FAULT_COUNTS   a file that receives the number of calls of each kind, in the order of kDiskCallNames, also
//                         from a killed program
//
// KIND is one of kDiskCallNames. ACTION is an errno, `short`, `kill` (before the call takes effect; a write takes
// effect in half), `killed` (after it) or `stop` (SIGSTOP before the call).
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/faults/disk_calls.hpp"

namespace {

using mpzero::faults::DiskCall;
using mpzero::faults::kDiskCallNames;
using mpzero::faults::kDiskCalls;

enum class Action { kNone, kError, kShort, kKillBefore, kKillAfter, kStop };

struct Fault {
  int call = -1;  // a DiskCall, or kDiskCalls for any
  uint64_t number = 0;
  Action action = Action::kNone;
  int error = 0;
  uint64_t last = 0;
};

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Fault parse_fault(std::string_view text) {
  Fault fault;
  const auto next = [&] {
    const size_t end = std::min(text.find(':'), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    return word;
  };
  if (text.empty()) return fault;
  const std::string call = next();
  fault.call = static_cast<int>(std::find(kDiskCallNames.begin(), kDiskCallNames.end(), call) - kDiskCallNames.begin());
  fault.number = std::strtoull(next().c_str(), nullptr, 10);
  const std::string action = next();
  fault.action = action == "short"    ? Action::kShort
                 : action == "kill"   ? Action::kKillBefore
                 : action == "killed" ? Action::kKillAfter
                 : action == "stop"   ? Action::kStop
                                      : Action::kError;
  if (fault.action == Action::kError) fault.error = std::atoi(action.c_str());
  const std::string last = next();
  fault.last = last == "on" ? UINT64_MAX : last.empty() ? fault.number : std::strtoull(last.c_str(), nullptr, 10);
  return fault;
}

// The effect on a call.
struct Happening {
  Action action = Action::kNone;
  int error = 0;
};

class Disk {
 public:
  static Disk& get() {
    static Disk instance;
    return instance;
  }

  // Counts the call and returns the effect on it. Reading the state of a file does not count for `any`.
  Happening at(DiskCall call, const char* path) {
    if (!concerns(path)) return {};
    const auto kind = static_cast<size_t>(call);
    const uint64_t number = ++counts_[kind];
    const uint64_t number_of_any = call == DiskCall::kStat ? 0 : ++counts_[kDiskCalls];
    for (const Fault& fault : faults_) {
      const bool is_any = fault.call == static_cast<int>(kDiskCalls);
      if (!is_any && fault.call != static_cast<int>(kind)) continue;
      const uint64_t now = is_any ? number_of_any : number;
      if (now == 0 || now < fault.number || now > fault.last) continue;
      if (fault.action == Action::kStop) ::raise(SIGSTOP);
      if (fault.action == Action::kKillBefore && call != DiskCall::kWrite) die();
      if (fault.action != Action::kStop) return {fault.action, fault.error};
    }
    return {};
  }
  Happening at(DiskCall call, int folder, const char* path) {
    if (path[0] == '/' || folder == AT_FDCWD) return at(call, path);
    char full_path[2 * PATH_MAX];
    const std::string parent = path_of(folder);
    std::snprintf(full_path, sizeof full_path, "%s/%s", parent.c_str(), path);
    return at(call, full_path);
  }
  Happening at(DiskCall call, int descriptor) { return at(call, path_of(descriptor).c_str()); }

  [[noreturn]] static void die() {
    ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }

 private:
  Disk() : folder_(environment("MPZERO_FAULT_FOLDER")), part_(environment("MPZERO_FAULT_PATH")) {
    std::string_view faults = environment("MPZERO_FAULT");
    while (!faults.empty()) {
      const size_t end = std::min(faults.find(','), faults.size());
      faults_.push_back(parse_fault(faults.substr(0, end)));
      faults.remove_prefix(std::min(end + 1, faults.size()));
    }
    const char* counts = environment("MPZERO_FAULT_COUNTS");
    if (counts[0] == '\0') return;
    const auto open = reinterpret_cast<int (*)(const char*, int, ...)>(::dlsym(RTLD_NEXT, "open"));
    const int descriptor = open(counts, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void* mapped = ::mmap(nullptr, sizeof own_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped != MAP_FAILED) counts_ = static_cast<std::atomic<uint64_t>*>(mapped);
    ::close(descriptor);
  }

  static std::string path_of(int descriptor) {
    char link[64];
    char path[PATH_MAX];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const int saved = errno;
    const ssize_t size = ::readlink(link, path, sizeof path);
    errno = saved;
    return size < 0 ? std::string() : std::string(path, static_cast<size_t>(size));
  }
  bool concerns(std::string_view path) const {
    if (folder_.empty() || !path.starts_with(folder_)) return false;
    return part_.empty() || path.find(part_) != std::string_view::npos;
  }

  std::string folder_, part_;
  std::vector<Fault> faults_;
  std::atomic<uint64_t> own_[kDiskCalls + 1] = {};
  std::atomic<uint64_t>* counts_ = own_;
};

// The function of this name in the next library.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// Carries out a call that takes effect in full or not at all, unless it is the failing one.
template <typename Result, typename Call>
Result through(Happening now, Result failed, const Call& call) {
  if (now.action == Action::kError) {
    errno = now.error;
    return failed;
  }
  const Result result = call();
  if (now.action == Action::kKillAfter) Disk::die();
  return result;
}

// The same for a transfer of `size` bytes. `call` takes the number of bytes.
template <typename Call>
ssize_t transfer(Happening now, int descriptor, size_t size, const Call& call) {
  if (now.action == Action::kShort || now.action == Action::kKillBefore) {
    const int saved = errno;
    const bool direct = (::fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
    errno = saved;
    constexpr size_t kSector = 512;
    size_t half = size / 2;
    if (direct) half -= half % kSector;
    if (half == 0) half = size;
    const ssize_t result = call(half);
    if (now.action == Action::kKillBefore) Disk::die();
    return result;
  }
  return through(now, ssize_t{-1}, [&] { return call(size); });
}

bool writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0; }
DiskCall open_call(int flags) { return writes(flags) ? DiskCall::kCreate : DiskCall::kOpen; }

mode_t mode_of(int flags, va_list& list) { return (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0; }

int open_file(const char* symbol, const char* path, int flags, mode_t mode) {
  return through(Disk::get().at(open_call(flags), path), -1,
                 [&] { return real<int(const char*, int, ...)>(symbol)(path, flags, mode); });
}
int open_file_in(const char* symbol, int folder, const char* path, int flags, mode_t mode) {
  return through(Disk::get().at(open_call(flags), folder, path), -1,
                 [&] { return real<int(int, const char*, int, ...)>(symbol)(folder, path, flags, mode); });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_file("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_file("open64", path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_file_in("openat", folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_file_in("openat64", folder, path, flags, mode);
}

DIR* opendir(const char* path) {
  return through(Disk::get().at(DiskCall::kOpen, path), static_cast<DIR*>(nullptr),
                 [&] { return real<DIR*(const char*)>("opendir")(path); });
}

int stat(const char* path, struct stat* out) {
  return through(Disk::get().at(DiskCall::kStat, path), -1,
                 [&] { return real<int(const char*, struct stat*)>("stat")(path, out); });
}
int lstat(const char* path, struct stat* out) {
  return through(Disk::get().at(DiskCall::kStat, path), -1,
                 [&] { return real<int(const char*, struct stat*)>("lstat")(path, out); });
}
int fstat(int descriptor, struct stat* out) {
  return through(Disk::get().at(DiskCall::kStat, descriptor), -1,
                 [&] { return real<int(int, struct stat*)>("fstat")(descriptor, out); });
}
int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return through(Disk::get().at(DiskCall::kStat, folder, path), -1,
                 [&] { return real<int(int, const char*, struct stat*, int)>("fstatat")(folder, path, out, flags); });
}

ssize_t read(int descriptor, void* out, size_t size) {
  return transfer(Disk::get().at(DiskCall::kRead, descriptor), descriptor, size,
                  [&](size_t part) { return real<ssize_t(int, void*, size_t)>("read")(descriptor, out, part); });
}
ssize_t pread(int descriptor, void* out, size_t size, off_t offset) {
  return transfer(Disk::get().at(DiskCall::kRead, descriptor), descriptor, size, [&](size_t part) {
    return real<ssize_t(int, void*, size_t, off_t)>("pread")(descriptor, out, part, offset);
  });
}
ssize_t pread64(int descriptor, void* out, size_t size, off64_t offset) { return pread(descriptor, out, size, offset); }

ssize_t write(int descriptor, const void* bytes, size_t size) {
  return transfer(Disk::get().at(DiskCall::kWrite, descriptor), descriptor, size, [&](size_t part) {
    return real<ssize_t(int, const void*, size_t)>("write")(descriptor, bytes, part);
  });
}
ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return transfer(Disk::get().at(DiskCall::kWrite, descriptor), descriptor, size, [&](size_t part) {
    return real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(descriptor, bytes, part, offset);
  });
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t offset) {
  return pwrite(descriptor, bytes, size, offset);
}

int fsync(int descriptor) {
  return through(Disk::get().at(DiskCall::kSync, descriptor), -1, [&] { return real<int(int)>("fsync")(descriptor); });
}
int fdatasync(int descriptor) {
  return through(Disk::get().at(DiskCall::kSync, descriptor), -1,
                 [&] { return real<int(int)>("fdatasync")(descriptor); });
}

int rename(const char* from, const char* to) {
  return through(Disk::get().at(DiskCall::kRename, from), -1,
                 [&] { return real<int(const char*, const char*)>("rename")(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return through(Disk::get().at(DiskCall::kRename, from_folder, from), -1, [&] {
    return real<int(int, const char*, int, const char*)>("renameat")(from_folder, from, to_folder, to);
  });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const DiskCall call = (flags & RENAME_EXCHANGE) != 0 ? DiskCall::kExchange : DiskCall::kRename;
  return through(Disk::get().at(call, from_folder, from), -1, [&] {
    return real<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from, to_folder, to,
                                                                                flags);
  });
}

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
  return through(Disk::get().at(DiskCall::kAllocate, descriptor), -1,
                 [&] { return real<int(int, int, off_t, off_t)>("fallocate")(descriptor, mode, offset, size); });
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t size) {
  return fallocate(descriptor, mode, offset, size);
}
int ftruncate(int descriptor, off_t size) noexcept {
  return through(Disk::get().at(DiskCall::kTruncate, descriptor), -1,
                 [&] { return real<int(int, off_t)>("ftruncate")(descriptor, size); });
}
int ftruncate64(int descriptor, off64_t size) noexcept { return ftruncate(descriptor, size); }

int flock(int descriptor, int operation) noexcept {
  return through(Disk::get().at(DiskCall::kLock, descriptor), -1,
                 [&] { return real<int(int, int)>("flock")(descriptor, operation); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return through(Disk::get().at(DiskCall::kMkdir, path), -1,
                 [&] { return real<int(const char*, mode_t)>("mkdir")(path, mode); });
}
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return through(Disk::get().at(DiskCall::kMkdir, folder, path), -1,
                 [&] { return real<int(int, const char*, mode_t)>("mkdirat")(folder, path, mode); });
}
int unlink(const char* path) noexcept {
  return through(Disk::get().at(DiskCall::kRemove, path), -1, [&] { return real<int(const char*)>("unlink")(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return through(Disk::get().at(DiskCall::kRemove, folder, path), -1,
                 [&] { return real<int(int, const char*, int)>("unlinkat")(folder, path, flags); });
}
int rmdir(const char* path) noexcept {
  return through(Disk::get().at(DiskCall::kRemove, path), -1, [&] { return real<int(const char*)>("rmdir")(path); });
}
int remove(const char* path) noexcept {
  return through(Disk::get().at(DiskCall::kRemove, path), -1, [&] { return real<int(const char*)>("remove")(path); });
}

}  // extern "C"
