#include "io/locks/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMaxOwnerBytes = 4096;
constexpr milliseconds kPause(50);

const char* remedy_of(FolderLock::Purpose purpose) {
  return purpose == FolderLock::Purpose::kTraining ? ", or use another --checkpoint_dir"
                                                   : ", then prune; or set --keep_last in that run";
}

// `owner` is the text of the lock file, written by show_owner().
bool is_of_job(const std::string& owner, const std::string& job) {
  return !job.empty() && (owner.ends_with("(job " + job + ")") || owner.ends_with(", job " + job + ")"));
}

// Does not follow symbolic links because the file is written to.
int open_lock(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (descriptor < 0) throw_system_error("open", path, errno);
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
  ::close(descriptor);
  throw_user_error("{} is not a regular file; delete it", path.string());
}

int try_flock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

// mountinfo escapes whitespace as a backslash and three octal digits.
std::string unescaped(const std::string& text) {
  constexpr size_t kDigits = 3;
  constexpr int kOctal = 8;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + kDigits < text.size() && text.find_first_not_of("01234567", i + 1) >= i + 1 + kDigits) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, kDigits), nullptr, kOctal));
      i += kDigits;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool is_below(const fs::path& path, const fs::path& mount_point) {
  return std::mismatch(mount_point.begin(), mount_point.end(), path.begin(), path.end()).first == mount_point.end();
}

bool has(const Mount& mount, std::string_view option) {
  return mount.options.find(fmt::format(",{},", option)) != std::string::npos;
}

}  // namespace

std::optional<Mount> find_mount(std::string_view mountinfo, const fs::path& path) {
  std::optional<Mount> found;
  size_t longest = 0;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    // 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue
    std::istringstream fields(line);
    std::string id, parent, device, root, point, options, word;
    fields >> id >> parent >> device >> root >> point >> options;
    while (fields >> word && word != "-") {
    }
    std::string type, source, super_options;
    if (!(fields >> type >> source)) continue;
    fields >> super_options;
    const fs::path mount_point = point == "/" ? fs::path("/") : fs::path(unescaped(point));
    // If several mounts have the same mount point, only the last mount is visible.
    if (!is_below(path, mount_point) || mount_point.native().size() < longest) continue;
    longest = mount_point.native().size();
    found = Mount{.type = type, .options = fmt::format(",{},{},", options, super_options)};
  }
  return found;
}

LockReach lock_reach(const Mount& mount) {
  // Local file systems and file systems with locks across all hosts.
  constexpr std::array<std::string_view, 13> kComplete = {
      "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "ramfs", "bcachefs", "ceph", "jfs"};
  if (std::find(kComplete.begin(), kComplete.end(), mount.type) != kComplete.end()) return LockReach::kAll;
  if (mount.type == "nfs" || mount.type == "nfs4") {
    const bool local = has(mount, "nolock") || has(mount, "local_lock=flock") || has(mount, "local_lock=all");
    return local ? LockReach::kThisHost : LockReach::kAll;
  }
  // flock(2) succeeds but excludes only processes on the same host.
  if (mount.type == "gpfs") return LockReach::kThisHost;
  if (mount.type == "lustre") return has(mount, "flock") ? LockReach::kAll : LockReach::kThisHost;
  return LockReach::kUnknown;
}

LockReach lock_reach_of(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  std::ifstream table("/proc/self/mountinfo");
  if (error || !table) return LockReach::kUnknown;
  const std::optional<Mount> mount = find_mount(std::string{std::istreambuf_iterator<char>(table), {}}, path);
  return mount ? lock_reach(*mount) : LockReach::kUnknown;
}

FolderLock::FolderLock(const fs::path& folder, const Options& options, FileSystem& files)
    : folder_(folder),
      files_(files),
      path_(folder / kFile),
      inode_(inode_of(folder / ".").value_or(Inode{})),
      flock_(options.flock ? options.flock : &try_flock) {
  descriptor_ = open_lock(path_);
  try {
    const bool locked = lock(options);
    const LockReach reach = options.reach.value_or(lock_reach_of(folder));
    if (locked && reach == LockReach::kThisHost && options.warn) {
      options.warn(
          fmt::format("file locks in {} do not work across hosts (because of the file system or its mount options): "
                      "only the .owner-* files protect the folder from runs on other hosts.",
                      folder.string()));
    }
    decides_ = locked && reach == LockReach::kAll;
    claim(options);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  if (options.renewal.count() == 0 || !owner_) return;
  renewal_ =
      std::jthread([this, renewal = options.renewal](const std::stop_token& stop) { renew_until(stop, renewal); });
}

void FolderLock::claim(const Options& options) {
  try {
    owner_.emplace(
        folder_, this_owner(options.job),
        FolderOwner::Options{
            .has_lock = decides_, .clock = options.clock, .say = options.say, .remedy = remedy_of(options.purpose)},
        files_);
  } catch (const Error& error) {
    if (!decides_ || !is_full_disk(error.system_error())) throw;
    if (options.warn)
      options.warn(
          fmt::format("the owner of the lock in {} could not be recorded: {}.", folder_.string(), error.what()));
  }
}

void FolderLock::check() {
  check_folder();
  if (!decides_) return owner_->renew();
  hold_lock();
}

void FolderLock::check_folder() const {
  const std::optional<Inode> now = inode_of(folder_ / ".");
  if (!now) {
    throw_failure(
        "{} has disappeared: it was moved, deleted or unmounted. No checkpoints are saved until the folder is restored "
        "or recreated",
        folder_.string());
  }
  // Accepts a recreated folder on the same file system, and a remounted file system with a new device number.
  if (now->device == inode_.device || now->number == inode_.number) return;
  throw_failure(
      "{} is no longer on its original file system, e.g. after an unmount. No checkpoints are saved until the "
      "original file system is mounted again",
      folder_.string());
}

void FolderLock::set_run(const std::string& run) {
  try {
    if (owner_) owner_->set_run(run);
  } catch (const Error&) {
    // If the lock excludes all other processes, the record is used only in messages.
    if (!decides_) throw;
  }
}

bool FolderLock::is_named() const {
  struct stat held {};
  struct stat named {};
  if (::fstat(descriptor_, &held) != 0) throw_system_error("access", path_, errno);
  if (::stat(path_.c_str(), &named) == 0) return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  if (errno != ENOENT) throw_system_error("access", path_, errno);
  return false;
}

void FolderLock::hold_lock() {
  const std::scoped_lock guard(holding_);
  if (is_named()) return;
  const int descriptor = open_lock(path_);
  if (const int error = flock_(descriptor); error != 0) {
    ::close(descriptor);
    if (error != EWOULDBLOCK) throw_system_error("lock", path_, error);
    const std::string owner = read_text_file(path_, kMaxOwnerBytes);
    throw FolderTaken(fmt::format("another process{} has taken over {}: this run no longer writes to the folder",
                                  owner.empty() ? std::string() : fmt::format(" ({})", owner), folder_.string()));
  }
  ::close(std::exchange(descriptor_, descriptor));
}

void FolderLock::remove() {
  renewal_ = {};
  owner_.reset();
  if (is_named()) files_.remove_file(path_);
}

FolderLock::~FolderLock() {
  renewal_ = {};
  owner_.reset();
  ::close(descriptor_);
}

void FolderLock::wait_for_predecessor(const Options& options, milliseconds waited) {
  const std::string owner = read_text_file(path_, kMaxOwnerBytes);
  const std::string folder = folder_.string();
  if (options.patience_with_predecessor.count() == 0 || !is_of_job(owner, options.job)) {
    throw_user_error("another run ({}) is using {}; stop it or wait until it ends{}", owner, folder,
                     remedy_of(options.purpose));
  }
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(options.patience_with_predecessor).count();
  if (waited >= options.patience_with_predecessor) {
    throw_failure(
        "a previous attempt of this job ({}) still holds the lock on {} after {} s: its process is stuck in a file "
        "system or driver call; reboot the host",
        owner, folder, limit);
  }
  if (!std::exchange(waits_, true) && options.say) {
    options.say(
        fmt::format("waiting up to {} s for a previous attempt of this job ({}) to release {}", limit, owner, folder));
  }
}

bool FolderLock::lock(const Options& options) {
  const milliseconds start = options.clock.now();
  for (;;) {
    const int error = flock_(descriptor_);
    if (error == 0) {
      if (is_named()) break;
      // A refused start has removed the file with remove(), and possibly the folder.
      make_folders(folder_, files_);
      ::close(std::exchange(descriptor_, open_lock(path_)));
      continue;
    }
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) {
      if (options.warn) {
        options.warn(
            fmt::format("the file system of {} does not support file locks (flock: {}): only the .owner-* files "
                        "protect the folder from other runs.",
                        folder_.string(), std::strerror(error)));
      }
      return false;
    }
    if (const milliseconds waited = options.clock.now() - start; waited >= options.patience) {
      wait_for_predecessor(options, waited);
    }
    options.clock.wait(kPause);
  }
  // The text is used only in messages, so write errors are ignored.
  const std::string owner = show_owner(this_owner(options.job));
  if (::ftruncate(descriptor_, 0) == 0) {
    [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, owner.data(), owner.size(), 0);
  }
  return true;
}

void FolderLock::renew_until(const std::stop_token& stop, milliseconds renewal) {
  std::unique_lock guard(mutex_);
  while (!wake_.wait_for(guard, stop, renewal, [&] { return stop.stop_requested(); })) {
    try {
      owner_->renew();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): check() reports it before the next save
    }
  }
}

}  // namespace mpzero::io
