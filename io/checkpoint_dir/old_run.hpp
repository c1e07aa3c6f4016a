#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/files/file_system.hpp"

// Moves the files of an earlier run in a checkpoint folder to the subfolder `old-<n>`, which is a valid
// --checkpoint_dir. Call on rank 0 only, while holding the FolderLock.
//
// Each file or checkpoint is moved by one rename. After a crash, the remaining ones are still in the checkpoint folder,
// and the next --overwrite moves them to `old-<n + 1>`.
namespace mpzero::io {

// Returns the name of the next folder to create. The first name is "old-1".
std::string next_old_name(const std::filesystem::path& checkpoint_dir);

// Moves the files and folders `names` in `checkpoint_dir`, in this order, and returns their new folder. See
// throw_system_error() for errors; the files that are not yet moved remain in place.
std::filesystem::path move_aside(const std::filesystem::path& checkpoint_dir, const std::vector<std::string>& names,
                                 FileSystem& files = disk());

}  // namespace mpzero::io
