#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/files/file_system.hpp"

namespace mpzero::io {

// Throws what a failed system call means to the user: "cannot ACTION PATH: REASON". A reason the user can mend (no
// space, no permission, no such folder, ...) is a UserError and comes with the remedy, any other a Failure. Both know
// the errno.
[[noreturn]] void throw_system_error(std::string_view action, const std::filesystem::path& path, int error_number);

// An open file. Every call either does all of what it was asked for or throws through throw_system_error.
class File {
 public:
  static File open_for_reading(const std::filesystem::path& path);
  // The file `name` of the folder that the descriptor is of; `path` is for messages.
  static File open_in(int folder, const std::string& name, const std::filesystem::path& path);
  // Opens an existing file for writing in place, its contents kept.
  static File open_for_update(const std::filesystem::path& path, FileSystem& files = disk());
  // Opens the file for writing alone, in place, and makes it, empty, if it is not there.
  static File open_or_create(const std::filesystem::path& path, FileSystem& files = disk());
  // Makes the file, for writing alone. Its system error is EEXIST where it is there.
  static File create_new(const std::filesystem::path& path, FileSystem& files = disk());
  // Makes the file anew.
  static File create(const std::filesystem::path& path, FileSystem& files = disk());

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  int64_t size() const;
  // Throws Damaged "truncated" where the file ends before offset + out.size().
  void read(int64_t offset, std::span<std::byte> out) const;
  void write(int64_t offset, std::span<const std::byte> bytes);
  void resize(int64_t size);
  // Asks the kernel to start writing [offset, offset + size) to the disk, so that a later sync() has less to wait for.
  void start_writeback(int64_t offset, int64_t size) noexcept;
  // Returns once the contents are on the disk. After a failure the file must be given up: a second attempt can succeed
  // although data were lost.
  void sync();

 private:
  File(std::filesystem::path path, int flags, std::string_view action, FileSystem& files);
  File(std::filesystem::path path, int descriptor);

  FileSystem* files_;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Makes the entries of `folder` (names made, renamed, removed) outlive a crash of the machine.
void sync_folder(const std::filesystem::path& folder, FileSystem& files = disk());

// The whole file as text. Throws Damaged when it is larger than `max_size` bytes.
std::string read_text_file(const std::filesystem::path& path, int64_t max_size);
std::string read_text_file(const File& file, int64_t max_size);

// Writes and syncs `path`; its folder is not synced.
void write_text_file(const std::filesystem::path& path, std::string_view text, FileSystem& files = disk());

// Replaces `path` in one step: whoever reads it, also after a crash, finds the old or the new text, never a mixture.
void replace_text_file(const std::filesystem::path& path, std::string_view text, FileSystem& files = disk());

// Whether there is something, a folder, at `path`. Symbolic links are followed. What the system cannot tell (no
// permission, an error of the disk) throws: it is not the same as nothing.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to, FileSystem& files = disk());
// Makes the folder and those above it that are missing; they outlive a crash of the machine.
void make_folders(const std::filesystem::path& folder, FileSystem& files = disk());
// Removes the folder, if it is there, with all that is in it.
void remove_folder(const std::filesystem::path& folder, FileSystem& files = disk());
// Makes the folder if need be and throws unless files can be made in it.
void check_writable(const std::filesystem::path& folder);

}  // namespace mpzero::io
