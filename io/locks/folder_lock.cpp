#include "io/locks/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/inode.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

using std::chrono::milliseconds;

constexpr const char* kLockName = ".lock";
constexpr int64_t kMaxOwnerBytes = 4096;
constexpr milliseconds kPause(50);

const char* remedy(FolderLock::Purpose purpose) {
  switch (purpose) {
    case FolderLock::Purpose::kTraining:
      return ", or give this run another --checkpoint_dir";
    case FolderLock::Purpose::kPruning:
      return ", then prune; a run prunes by itself with --keep_last";
  }
  return "";
}

// `owner`: the text of the lock file, which show_owner() wrote.
bool is_of_job(const std::string& owner, const std::string& job) {
  return !job.empty() && (owner.ends_with("(job " + job + ")") || owner.ends_with(", job " + job + ")"));
}

// Symbolic links are not followed, because the file is written to.
int open_lock(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (descriptor < 0) throw_system_error("open", path, errno);
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
  ::close(descriptor);
  throw_user_error("{} is not a regular file: remove it", path.string());
}

int try_flock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

}  // namespace

FolderLock::FolderLock(const fs::path& folder, const Options& options, FileSystem& files)
    : folder_(folder),
      inode_(inode_of(folder / ".").value_or(Inode{})),
      flock_(options.flock ? options.flock : &try_flock) {
  const fs::path path = folder / kLockName;
  descriptor_ = open_lock(path);
  try {
    const bool locked = lock(path, options);
    const LockReach reach = options.reach.value_or(lock_reach_of(folder));
    if (locked && reach == LockReach::kThisHost && options.warn) {
      options.warn(
          fmt::format("file locks in {} do not reach other hosts (its file system has no such locks, or is mounted "
                      "without them): only the files .owner-* there keep out a run on another host.",
                      folder.string()));
    }
    decides_ = locked && reach == LockReach::kAll;
    claim(options, files);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  if (options.renewal.count() == 0 || !owner_) return;
  renewal_ =
      std::jthread([this, renewal = options.renewal](const std::stop_token& stop) { renew_until(stop, renewal); });
}

void FolderLock::claim(const Options& options, FileSystem& files) {
  try {
    owner_.emplace(
        folder_, this_owner(options.job),
        FolderOwner::Options{
            .has_lock = decides_, .clock = options.clock, .say = options.say, .remedy = remedy(options.purpose)},
        files);
  } catch (const Error& error) {
    if (!decides_ || !is_full_disk(error.system_error())) throw;
    if (options.warn) options.warn(fmt::format("the owner of {} is not recorded: {}.", folder_.string(), error.what()));
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
        "{} has disappeared: it was moved or deleted, or its file system was unmounted. Nothing is saved until it is "
        "back; to save into a new folder, create it",
        folder_.string());
  }
  // A folder on the same file system was put there by somebody. A file system that was mounted again may have another
  // device number.
  if (now->device == inode_.device || now->number == inode_.number) return;
  throw_failure(
      "{} is on another file system than at the start of the run, as after an unmount. Nothing is saved until that "
      "file system is mounted again",
      folder_.string());
}

void FolderLock::set_run(const std::string& run) {
  try {
    if (owner_) owner_->set_run(run);
  } catch (const Error&) {
    // Where the lock decides, the record is only used in messages to others.
    if (!decides_) throw;
  }
}

void FolderLock::hold_lock() {
  const std::scoped_lock guard(holding_);
  const fs::path path = folder_ / kLockName;
  struct stat held {};
  struct stat named {};
  if (::fstat(descriptor_, &held) != 0) throw_system_error("look at", path, errno);
  if (::stat(path.c_str(), &named) == 0) {
    if (held.st_dev == named.st_dev && held.st_ino == named.st_ino) return;
  } else if (errno != ENOENT) {
    throw_system_error("look at", path, errno);
  }
  const int descriptor = open_lock(path);
  if (const int error = flock_(descriptor); error != 0) {
    ::close(descriptor);
    if (error != EWOULDBLOCK) throw_system_error("lock", path, error);
    const std::string owner = read_text_file(path, kMaxOwnerBytes);
    throw FolderTaken(fmt::format("another run{} has taken over {}: nothing more is saved there",
                                  owner.empty() ? std::string() : fmt::format(" ({})", owner), folder_.string()));
  }
  ::close(std::exchange(descriptor_, descriptor));
}

FolderLock::~FolderLock() {
  renewal_ = {};
  owner_.reset();
  ::close(descriptor_);
}

void FolderLock::wait_for_predecessor(const fs::path& path, const Options& options, milliseconds waited) {
  const std::string owner = read_text_file(path, kMaxOwnerBytes);
  const std::string folder = path.parent_path().string();
  if (options.patience_with_predecessor.count() == 0 || !is_of_job(owner, options.job)) {
    throw_user_error("another run ({}) is using {}: wait until it ends or stop it{}", owner, folder,
                     remedy(options.purpose));
  }
  const auto limit = std::chrono::duration_cast<std::chrono::seconds>(options.patience_with_predecessor).count();
  if (waited >= options.patience_with_predecessor) {
    throw_failure(
        "an earlier start of this job ({}) still locks {} after {} s: its process cannot exit, which a file "
        "system or a driver that does not respond causes; reboot its host",
        owner, folder, limit);
  }
  if (!std::exchange(waits_, true) && options.say) {
    options.say(fmt::format("waiting up to {} s for an earlier start of this job ({}), which still locks {}", limit,
                            owner, folder));
  }
}

bool FolderLock::lock(const fs::path& path, const Options& options) {
  const milliseconds start = options.clock.now();
  for (;;) {
    const int error = flock_(descriptor_);
    if (error == 0) break;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) {
      if (options.warn) {
        options.warn(fmt::format(
            "the file system of {} has no file locks (flock: {}): only the files .owner-* there keep out another run.",
            path.parent_path().string(), std::strerror(error)));
      }
      return false;
    }
    if (const milliseconds waited = options.clock.now() - start; waited >= options.patience) {
      wait_for_predecessor(path, options, waited);
    }
    options.clock.wait(kPause);
  }
  // Only used in the message above. If it cannot be written, the lock is still held.
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
