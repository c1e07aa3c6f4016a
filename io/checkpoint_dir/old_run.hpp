#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/files/file_system.hpp"

// Moves the files of an earlier run in a checkpoint folder to the subfolder `old-<n>`, which is a valid
// --checkpoint_dir. Must be called only on rank 0, while a FolderLock on the checkpoint folder is held.
//
// The names of the files are written to `old-<n>.moving/.moving`, and the files are then moved to `old-<n>.moving` one
// by one. After the last move, the folder is renamed to `old-<n>`. finish_moving() completes a move that a crash
// interrupted.
namespace mpzero::io {

// Returns the name of the next folder to create. The first name is "old-1".
std::string next_old_name(const std::filesystem::path& checkpoint_dir);

// Moves the files and folders `names` in `checkpoint_dir` and returns their new folder. Throws UserError before any
// change if a name is reserved or contains a line break. If a move fails, throws UserError or Failure, and
// finish_moving() can complete the move.
std::filesystem::path move_aside(const std::filesystem::path& checkpoint_dir, const std::vector<std::string>& names,
                                 FileSystem& files = disk());

// Completes interrupted moves. Returns the completed folders. Throws UserError if the list of names is damaged.
std::vector<std::filesystem::path> finish_moving(const std::filesystem::path& checkpoint_dir,
                                                 FileSystem& files = disk());

}  // namespace mpzero::io
