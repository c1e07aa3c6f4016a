#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/files/file_system.hpp"

// Moves the files of an earlier run in a checkpoint folder out of the way: into `old-<n>` in the same folder. That
// folder is a checkpoint folder itself and is never mistaken for a checkpoint. Rank 0 only, while holding the folder's
// lock.
//
// The names are listed in `old-<n>.moving/.moving` and moved there one by one. The folder becomes `old-<n>` when all
// have been moved. After a crash at any moment each name is in one of the two places, and finish_moving() continues.
namespace mpzero::io {

// The name of the folder that the next move creates: "old-1" in a folder without any.
std::string next_old_name(const std::filesystem::path& checkpoint_dir);

// Moves `names`, of files and folders in `checkpoint_dir`, and returns their new folder. Throws UserError before any
// change if a name is reserved for the list. Throws UserError or Failure later; finish_moving() then completes the
// move.
std::filesystem::path move_aside(const std::filesystem::path& checkpoint_dir, const std::vector<std::string>& names,
                                 FileSystem& files = disk());

// Completes moves that a crash has interrupted. Returns the folders that are now complete. Throws UserError if the list
// of names is damaged.
std::vector<std::filesystem::path> finish_moving(const std::filesystem::path& checkpoint_dir,
                                                 FileSystem& files = disk());

}  // namespace mpzero::io
