#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/files/file_system.hpp"

// Moves what an earlier run has left in a folder of checkpoints out of the way: into `old-<n>` in the same folder,
// which is a folder of checkpoints itself and which nobody takes for a checkpoint. All of it is for rank 0 alone, with
// the folder's lock.
//
// The names are written down in `old-<n>.moving/.moving`, go there one by one, and the folder becomes `old-<n>` when
// all are there. After a crash at any moment each name is in one of the two places, and finish_moving() goes on.
namespace mpzero::io {

// The name of the folder that the next move makes: "old-1" in a folder without any.
std::string next_old_name(const std::filesystem::path& checkpoint_dir);

// Moves `names`, of files and folders in `checkpoint_dir`, and returns where they are. Throws UserError, before
// anything has changed, where one is a name that the list itself takes; UserError or Failure later on: what has been
// moved by then is for finish_moving() to see to.
std::filesystem::path move_aside(const std::filesystem::path& checkpoint_dir, const std::vector<std::string>& names,
                                 FileSystem& files = disk());

// Brings to its end what a crash has interrupted. Returns the folders that are complete now. Throws UserError where the
// list of names is not what was written.
std::vector<std::filesystem::path> finish_moving(const std::filesystem::path& checkpoint_dir,
                                                 FileSystem& files = disk());

}  // namespace mpzero::io
