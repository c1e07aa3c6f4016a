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

// Whether the errno is that of a full disk or an exhausted quota, where a later attempt may succeed.
bool is_full_disk(int error_number);

// Throws the error of a failed system call: "cannot ACTION PATH: REASON". If the user can fix the cause (no permission,
// no such folder, ...), it is a UserError, otherwise, or if the disk is full, a Failure. Both carry the errno, and the
// remedy if there is one.
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error_number);

// An open file. Every call either completes in full or throws through throw_system_error.
class File {
 public:
  // Throws UserError if `path` is a FIFO, a socket or a device: nothing is read from it, and no call waits for it.
  static File open_for_reading(const std::filesystem::path& path);
  // The same for the file `name` in the folder with the descriptor `folder`. `path` is used in messages.
  static File open_in(int folder, const std::string& name, const std::filesystem::path& path);
  // Opens an existing file for writing in place and keeps its contents.
  static File open_for_update(const std::filesystem::path& path, FileSystem& files = disk());
  // Opens the file write-only, in place. Creates an empty file if it does not exist.
  static File open_or_create(const std::filesystem::path& path, FileSystem& files = disk());
  // Creates the file, write-only. The system error is EEXIST if the file exists.
  static File create_new(const std::filesystem::path& path, FileSystem& files = disk());
  // Creates the file, or truncates an existing one.
  static File create(const std::filesystem::path& path, FileSystem& files = disk());

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t size() const;
  // Throws Damaged "truncated" if the file ends before offset + out.size().
  void read(int64_t offset, std::span<std::byte> out) const;
  void write(int64_t offset, std::span<const std::byte> bytes);
  void resize(int64_t size);
  // Asks the kernel to start writing [offset, offset + size) to the disk, so that a later sync() has less to wait for.
  void start_writeback(int64_t offset, int64_t size) noexcept;
  // Returns once the contents are on disk. After a failure the file must be discarded: a second attempt can succeed
  // although data were lost.
  void sync();

 private:
  File(std::filesystem::path path, int flags, std::string_view action, FileSystem& files);
  File(std::filesystem::path path, int descriptor);

  FileSystem* files_;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Makes changes to the entries of `folder` (created, renamed, removed names) survive a crash of the machine.
void sync_folder(const std::filesystem::path& folder, FileSystem& files = disk());

// The full file as text. Throws Damaged if it is larger than `max_size` bytes.
std::string read_text_file(const std::filesystem::path& path, int64_t max_size);
std::string read_text_file(const File& file, int64_t max_size);

// Writes and syncs `path`. Does not sync its folder.
void write_text_file(const std::filesystem::path& path, std::string_view text, FileSystem& files = disk());

// Replaces `path` atomically: readers see the old or the new text, also after a crash, never a mixture. Synced::kNo
// does not wait for a busy disk, but is not atomic after a power failure: only for files that can be recreated.
enum class Synced : uint8_t { kYes, kNo };
void replace_text_file(const std::filesystem::path& path, std::string_view text, FileSystem& files = disk(),
                       Synced synced = Synced::kYes);

// Whether `path` exists, and whether it is a folder. Symbolic links are followed. If the system cannot tell (no
// permission, an I/O error), both throw instead of returning false.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to, FileSystem& files = disk());
// Creates the folder and its missing parents. They survive a crash of the machine.
void make_folders(const std::filesystem::path& folder, FileSystem& files = disk());
// Removes the folder, if it exists, and everything in it.
void remove_folder(const std::filesystem::path& folder, FileSystem& files = disk());
// Creates the folder if needed. Throws unless files can be created in it.
void check_writable(const std::filesystem::path& folder);

// No run writes a longer line.
inline constexpr size_t kLongestLine = size_t{4} << 20;

// Calls `use` with each line of a text file that a run or a launcher writes, and whether the line is complete. Omits
// text appended after the call, and the rest of a line beyond kLongestLine. Throws as File::open_for_reading does: it
// never waits for a FIFO and reads no device.
void read_lines(const std::filesystem::path& path, const std::function<void(std::string_view line, bool has_end)>& use);

}  // namespace mpzero::io
