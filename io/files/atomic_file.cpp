#include "io/files/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// Maximum number of bytes per system call. Linux transfers at most 2 GiB.
constexpr size_t kMaxTransfer = size_t{1} << 30;

// Returns the remedy for `error_number`, or an empty string if the user cannot fix the error.
std::string_view remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space or use a folder on a different disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "use a folder that you can read and write, or change its permissions";
    case ENOENT:
    case ENOTDIR:
    case EEXIST:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return "check the path";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    default:
      return "";
  }
}

const char* message_of(int error_number) { return std::strerror(error_number); }

void check_regular(const struct stat& status, const fs::path& path) {
  if (S_ISREG(status.st_mode)) return;
  if (S_ISDIR(status.st_mode)) throw_system_error("open", path, EISDIR);
  throw_user_error("{} is a FIFO, a socket or a device; delete it or use another path", path.string());
}

}  // namespace

bool is_full_disk(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

void throw_system_error(std::string_view action, const fs::path& path, int error_number) {
  const std::string_view what_to_do = remedy(error_number);
  const std::string sentence = fmt::format("cannot {} {}: {}", action, path.string(), message_of(error_number));
  if (what_to_do.empty()) throw Failure(sentence, ErrorScope::kThisRank, error_number);
  const std::string message = fmt::format("{}; {}", sentence, what_to_do);
  if (is_full_disk(error_number)) throw Failure(message, ErrorScope::kThisRank, error_number);
  throw UserError(message, ErrorScope::kThisRank, error_number);
}

File::File(fs::path path, int flags, std::string_view action, FileSystem& files)
    : files_(&files), path_(std::move(path)) {
  int error = 0;
  do {
    error = files.open(path_, flags, descriptor_);
  } while (error == EINTR);
  if (error != 0) throw_system_error(action, path_, error);
}

File::File(fs::path path, int descriptor) : files_(&disk()), path_(std::move(path)), descriptor_(descriptor) {}

File File::open_in(int folder, const std::string& name, const fs::path& path) {
  int descriptor = -1;
  do {
    // Uses O_NONBLOCK because opening a FIFO would otherwise wait for a writer. Reads of regular files still block.
    descriptor = ::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  struct stat status {};
  if (descriptor < 0) {
    const int error = errno;
    // Sockets cannot be opened.
    if (error == ENXIO && ::fstatat(folder, name.c_str(), &status, 0) == 0) check_regular(status, path);
    throw_system_error("open", path, error);
  }
  File file(path, descriptor);
  if (::fstat(descriptor, &status) != 0) throw_system_error("access", path, errno);
  check_regular(status, path);
  return file;
}
File File::open_for_reading(const fs::path& path) { return open_in(AT_FDCWD, path.string(), path); }
File File::open_for_update(const fs::path& path, FileSystem& files) {
  return File(path, O_RDWR, "open for writing", files);
}
File File::open_or_create(const fs::path& path, FileSystem& files) {
  return File(path, O_WRONLY | O_CREAT, "create", files);
}
File File::create_new(const fs::path& path, FileSystem& files) {
  return File(path, O_WRONLY | O_CREAT | O_EXCL, "create", files);
}
File File::create(const fs::path& path, FileSystem& files) {
  return File(path, O_RDWR | O_CREAT | O_TRUNC, "create", files);
}

File::File(File&& other) noexcept
    : files_(other.files_), path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File::~File() {
  if (descriptor_ >= 0) files_->close(descriptor_);
}

int64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("read the size of", path_, errno);
  return status.st_size;
}

void File::read(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const size_t wanted = std::min(out.size() - done, kMaxTransfer);
    const ssize_t n = ::pread(descriptor_, out.data() + done, wanted, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system_error("read", path_, errno);
    if (n == 0) {
      throw Damaged(fmt::format("{} is truncated: it has {} bytes, but {} bytes are needed", path_.string(),
                                offset + static_cast<int64_t>(done), offset + static_cast<int64_t>(out.size())));
    }
    done += static_cast<size_t>(n);
  }
}

void File::write(int64_t offset, std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t wanted = std::min(bytes.size() - done, kMaxTransfer);
    size_t written = 0;
    const int error =
        files_->write(descriptor_, offset + static_cast<int64_t>(done), bytes.subspan(done, wanted), written);
    if (error == EINTR) continue;
    if (error != 0) throw_system_error("write", path_, error);
    done += written;
  }
}

void File::resize(int64_t size) {
  if (const int error = files_->resize(descriptor_, size); error != 0) {
    throw_system_error("set the size of", path_, error);
  }
}

void File::start_writeback(int64_t offset, int64_t size) noexcept {
  // This call is only a hint, so errors are ignored.
  (void)::sync_file_range(descriptor_, offset, size, SYNC_FILE_RANGE_WRITE);
}

void File::sync() {
  if (const int error = files_->sync(descriptor_); error != 0) throw_system_error("sync", path_, error);
}

void sync_folder(const fs::path& folder, FileSystem& files) {
  int descriptor = -1;
  if (const int error = files.open(folder, O_RDONLY | O_DIRECTORY, descriptor); error != 0) {
    throw_system_error("open folder", folder, error);
  }
  const int error = files.sync(descriptor);
  files.close(descriptor);
  // Some network file systems return EINVAL because they do not support fsync on folders. On these systems, renames
  // have already reached the server.
  if (error != 0 && error != EINVAL) throw_system_error("sync folder", folder, error);
}

std::string read_text_file(const fs::path& path, int64_t max_size) {
  return read_text_file(File::open_for_reading(path), max_size);
}

std::string read_text_file(const File& file, int64_t max_size) {
  const int64_t size = file.size();
  if (size > max_size) {
    throw Damaged(fmt::format("{} has {} bytes, which exceeds the limit of {}; check that it is the right file",
                              file.path().string(), size, max_size));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text_file(const fs::path& path, std::string_view text, FileSystem& files) {
  File file = File::create(path, files);
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
}

void replace_text_file(const fs::path& path, std::string_view text, FileSystem& files, Synced synced) {
  // Tries the next name if the file exists: it is a leftover or belongs to another process.
  constexpr int kMaxLeftovers = 1000;
  fs::path temporary = path.string() + ".tmp";
  std::optional<File> file;
  for (int n = 1; !file; ++n) {
    try {
      file.emplace(File::create_new(temporary, files));
    } catch (const Error& error) {
      if (error.system_error() != EEXIST || n == kMaxLeftovers) throw;
      if (n > 1 || files.remove_file(temporary) != 0) temporary = fmt::format("{}.{}.tmp", path.string(), n);
    }
  }
  try {
    file->write(0, std::as_bytes(std::span(text)));
    if (synced == Synced::kYes) file->sync();
    file.reset();
    rename_path(temporary, path, files);
  } catch (...) {
    files.remove_file(temporary);
    throw;
  }
  if (synced == Synced::kYes) sync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."), files);
}

namespace {

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return status;
  if (error) throw_system_error("access", path, error.value());
  return status;
}

}  // namespace

bool path_exists(const fs::path& path) { return fs::exists(status_of(path)); }
bool is_folder(const fs::path& path) { return fs::is_directory(status_of(path)); }

void rename_path(const fs::path& from, const fs::path& to, FileSystem& files) {
  if (const int error = files.rename(from, to); error != 0) {
    throw_system_error("create " + to.string() + " by renaming", from, error);
  }
}

void make_folders(const fs::path& folder, FileSystem& files) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return;
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  // "a/" refers to the folder "a".
  if (!folder.has_filename()) return make_folders(parent, files);
  make_folders(parent, files);
  const int error = files.make_folder(folder);
  if (error == EEXIST && fs::is_directory(folder, ignored)) return;  // another process created the folder
  if (error != 0) throw_system_error("create folder", folder, error == EEXIST ? ENOTDIR : error);
  sync_folder(parent, files);
}

void check_writable(const fs::path& folder) {
  make_folders(folder);
  const fs::path probe = folder / fmt::format(".mpzero-probe-{}", getpid());
  File::create(probe);
  std::error_code ignored;
  fs::remove(probe, ignored);
}

void remove_folder(const fs::path& folder, FileSystem& files) {
  std::error_code error;
  std::vector<fs::path> inside;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    inside.push_back(entry->path());
  }
  if (error == std::errc::no_such_file_or_directory) return;
  if (error) throw_system_error("list", folder, error.value());
  for (const fs::path& path : inside) {
    if (fs::is_directory(fs::symlink_status(path, error))) {
      remove_folder(path, files);
    } else if (const int failed = files.remove_file(path); failed != 0 && failed != ENOENT) {
      throw_system_error("remove", path, failed);
    }
  }
  if (const int failed = files.remove_folder(folder); failed != 0 && failed != ENOENT) {
    throw_system_error("remove", folder, failed);
  }
}

void read_lines(const std::filesystem::path& path,
                const std::function<void(std::string_view line, bool has_end)>& use) {
  const File file = File::open_for_reading(path);
  const int64_t size = file.size();
  std::vector<char> block(size_t{64} << 10);
  std::string line;
  for (int64_t offset = 0; offset < size;) {
    const auto wanted = std::min(static_cast<int64_t>(block.size()), size - offset);
    const ssize_t got = ::pread(file.descriptor(), block.data(), static_cast<size_t>(wanted), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path, errno);
    if (got == 0) break;  // the file was truncated
    offset += got;
    std::string_view rest(block.data(), static_cast<size_t>(got));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      line += rest.substr(0, std::min(end, kLongestLine - line.size()));
      if (end == std::string_view::npos) break;
      use(line, /*has_end=*/true);
      line.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (!line.empty()) use(line, /*has_end=*/false);
}

}  // namespace mpzero::io
