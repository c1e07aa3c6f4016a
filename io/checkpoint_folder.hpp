#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.hpp"

// Names and moves whole checkpoint folders. All of it is for rank 0 alone, except staging_folder.
//
// A checkpoint grows in `<tag>.tmp`, is renamed to `<tag>` when every byte and the manifest are on the disk, and is
// named by `latest` after that. A crash leaves at worst a `<tag>.tmp` or, where the file system cannot swap two folders
// in one step, the former `<tag>` as `<tag>.replaced`; restore_and_clean() sees to both.
namespace mpzero::io {

std::filesystem::path staging_folder(const std::filesystem::path& checkpoint_dir, const std::string& tag);

// Puts back what a crash left as `.replaced`, removes what crashed saves and prunings left, and makes an empty
// `<tag>.tmp`. Throws UserError for a tag that is no plain folder name.
void begin_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag, FileSystem& files = disk());

// The first two of these; returns the names that were removed.
std::vector<std::string> clean_up(const std::filesystem::path& checkpoint_dir, const std::string& tag = "",
                                  FileSystem& files = disk());

// Makes `<tag>.tmp`, complete and synced but for its folder entries, the checkpoint `<tag>`, and `latest` name it.
void publish(const std::filesystem::path& checkpoint_dir, const std::string& tag, FileSystem& files = disk());

// Removes `<tag>.tmp`; never throws.
void discard_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                     FileSystem& files = disk()) noexcept;

// Removes whole checkpoints, so that a crash at no moment leaves half of one under its name.
void remove_checkpoints(const std::vector<std::filesystem::path>& folders, FileSystem& files = disk());

// N of "<prefix>-<N>steps"; with an empty prefix, of a tag with any.
std::optional<int64_t> step_of_tag(std::string_view tag, std::string_view prefix);

// The tag whose former checkpoint a crash left under this name, "<tag>.replaced".
std::optional<std::string> replaced_tag(const std::string& folder_name);

// The folders in `parent`; none if it is not there.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& parent);

// The trimmed content of `latest`; nothing if there is no such file. Throws UserError where it is no folder's name.
std::optional<std::string> latest_tag(const std::filesystem::path& checkpoint_dir);

}  // namespace mpzero::io
