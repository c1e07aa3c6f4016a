#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/files/file_system.hpp"

namespace mpzero::io {

// Returns true if the errno means a full disk or an exceeded quota.
bool is_full_disk(int error_number);

// Throws the error of a failed system call: "cannot ACTION PATH: REASON". Throws UserError if the user can fix the
// cause, for example missing permissions or a wrong path. Throws Failure for all other causes, including a full disk.
// The exception contains the errno and, if known, a remedy.
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error_number);

// An open file. See throw_system_error() for errors.
class File {
 public:
  // Opens a file for reading. Throws UserError, without blocking, if `path` is a FIFO, a socket or a device.
  static File open_for_reading(const std::filesystem::path& path);
  // Opens the file `name` for reading, relative to the folder descriptor `folder`. `path`: path of the file, for
  // messages.
  static File open_in(int folder, const std::string& name, const std::filesystem::path& path);
  // Opens an existing file for reading and writing without truncation.
  static File open_for_update(const std::filesystem::path& path, FileSystem& files = disk());
  // Opens the file write-only without truncation. Creates the file if it does not exist.
  static File open_or_create(const std::filesystem::path& path, FileSystem& files = disk());
  // Creates the file and opens it write-only. Fails with EEXIST if the file exists.
  static File create_new(const std::filesystem::path& path, FileSystem& files = disk());
  // Creates the file or truncates an existing file.
  static File create(const std::filesystem::path& path, FileSystem& files = disk());

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t size() const;
  // Reads out.size() bytes at `offset`. Throws Damaged if the file ends before offset + out.size().
  void read(int64_t offset, std::span<std::byte> out) const;
  void write(int64_t offset, std::span<const std::byte> bytes);
  void resize(int64_t size);
  // Starts asynchronous writeback of [offset, offset + size), so that a later sync() is faster.
  void start_writeback(int64_t offset, int64_t size) noexcept;
  // Returns once the file's contents are on disk. After a failure, the caller must discard the file because a second
  // sync() can succeed despite lost data.
  void sync();

 private:
  File(std::filesystem::path path, int flags, std::string_view action, FileSystem& files);
  File(std::filesystem::path path, int descriptor);

  FileSystem* files_;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Syncs the entries of `folder`, so that the creation, renaming and removal of files survive a power failure.
void sync_folder(const std::filesystem::path& folder, FileSystem& files = disk());

// Returns the contents of the file. Throws Damaged if the file is larger than `max_size` bytes.
std::string read_text_file(const std::filesystem::path& path, int64_t max_size);
std::string read_text_file(const File& file, int64_t max_size);

// Writes and syncs the file `path`. Does not sync the parent folder.
void write_text_file(const std::filesystem::path& path, std::string_view text, FileSystem& files = disk());

// Replaces `path` atomically. Readers see either the old or the new text, even after a crash. Synced::kNo does not wait
// for the disk, but the file may be damaged after a power failure. Use kNo only for files that can be recreated.
enum class Synced : uint8_t { kYes, kNo };
void replace_text_file(const std::filesystem::path& path, std::string_view text, FileSystem& files = disk(),
                       Synced synced = Synced::kYes);

// path_exists() returns true if `path` exists, and is_folder() returns true if `path` is a folder. Both functions
// follow symbolic links and throw if the system call fails, for example because of missing permissions.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to, FileSystem& files = disk());
// Creates the folder and its missing parents and syncs the folder entries.
void make_folders(const std::filesystem::path& folder, FileSystem& files = disk());
// Removes the folder and its contents. Does nothing if the folder does not exist.
void remove_folder(const std::filesystem::path& folder, FileSystem& files = disk());
// Creates the folder if necessary. Throws unless files can be created in the folder.
void check_writable(const std::filesystem::path& folder);

// Maximum line length of read_lines(), in bytes.
inline constexpr size_t kLongestLine = size_t{4} << 20;

// Calls `use` with each line of a text file. `has_end` is false if the last line has no line break. Ignores text
// appended after the call and truncates lines to kLongestLine. See File::open_for_reading() for errors.
void read_lines(const std::filesystem::path& path, const std::function<void(std::string_view line, bool has_end)>& use);

}  // namespace mpzero::io
