#pragma once

#include <filesystem>
#include <string>

// Names and moves whole checkpoint folders. All of it is for rank 0 alone, except staging_folder.
//
// A checkpoint grows in `<tag>.tmp`, is renamed to `<tag>` when every byte and the manifest are on the disk, and is
// named by `latest` after that. A crash leaves at worst a `<tag>.tmp` or, where the file system cannot swap two folders
// in one step, the former `<tag>` as `<tag>.replaced`; restore_and_clean() sees to both.
namespace mpzero::io {

std::filesystem::path staging_folder(const std::filesystem::path& checkpoint_dir, const std::string& tag);

// Puts back what a crash left as `.replaced`, removes what crashed saves and prunings left, and makes an empty
// `<tag>.tmp`. Throws UserError for a tag that is no plain folder name.
void begin_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag);

// Makes `<tag>.tmp`, complete and synced but for its folder entries, the checkpoint `<tag>`, and `latest` name it.
void publish(const std::filesystem::path& checkpoint_dir, const std::string& tag);

// Removes `<tag>.tmp`; never throws.
void discard_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag) noexcept;

}  // namespace mpzero::io
