#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/run_record.hpp"
#include "io/files/file_system.hpp"

// Creates, renames and removes checkpoint folders. Rank 0 only, except staging_folder.
//
// A checkpoint is written to `<tag>.<8 digits of its writer>.tmp` (`<tag>.tmp` without a writer). A writer is one start
// of a run, identified by 16 hexadecimal digits, so that two starts never write into one folder. The folder is renamed
// to `<tag>` when every byte and the manifest are on disk, and then `latest` is updated to name it. A crash leaves
// at worst such a folder or, if the file system cannot swap two folders atomically, the former `<tag>` as
// `<tag>.replaced`. clean_up() handles both.
namespace mpzero::io {

std::filesystem::path staging_folder(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                                     const std::string& writer = "");

// A leftover of an earlier save or pruning that could not be removed. It only takes up space.
struct Leftover {
  std::filesystem::path path;
  std::string problem;  // one sentence
};

// Restores `.replaced` folders after a crash and removes the folders of interrupted saves and prunings: those of
// `writer` and those without a writer or, without `writer`, all of them. Only the folder's owner (FolderLock) may omit
// `writer`.
struct CleanUp {
  std::vector<std::string> removed;
  std::vector<Leftover> left;
};
CleanUp clean_up(const std::filesystem::path& checkpoint_dir, const std::optional<std::string>& writer = std::nullopt,
                 FileSystem& files = disk());

// Cleans up after the writer and creates an empty staging folder. Throws if that folder cannot be created or emptied.
// Returns other leftovers that remain. Throws UserError for a tag that is not a plain folder name.
std::vector<Leftover> begin_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                                    const std::string& writer = "", FileSystem& files = disk());

// Turns the staging folder, complete and synced except for its folder entries, into the checkpoint `<tag>`, and updates
// `latest`. `check` is called with the checkpoint to be replaced, if there is one, and again with the one that was
// replaced. If it throws, the former checkpoint stays, or is put back, in its place. Returns the leftovers of the
// former checkpoint that could not be removed.
std::vector<Leftover> publish(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                              const std::string& writer = "",
                              const std::function<void(const std::filesystem::path&)>& check = nullptr,
                              FileSystem& files = disk());

// Removes the staging folder. Never throws.
void discard_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag, const std::string& writer,
                     FileSystem& files = disk()) noexcept;

// Removes full checkpoints of the run, such that a crash never leaves a partial one under its name. Returns those that
// remain, under their names or as leftovers.
std::vector<Leftover> remove_checkpoints(const std::vector<std::filesystem::path>& folders,
                                         const std::string& writer = "", FileSystem& files = disk());

// N of "<prefix>-<N>steps". An empty prefix matches any prefix.
std::optional<int64_t> step_of_tag(std::string_view tag, std::string_view prefix);

// The tag of "<tag>.replaced", the name under which a crash leaves a former checkpoint.
std::optional<std::string> replaced_tag(const std::string& folder_name);

// The folders in `parent`, and entries that the system cannot distinguish from folders. Empty if `parent` does not
// exist.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& parent);

// The trimmed content of `latest`. std::nullopt if there is no such file. Throws Damaged if it is not a folder name.
std::optional<std::string> latest_tag(const std::filesystem::path& checkpoint_dir);

// The checkpoint that `<checkpoint_dir>/latest` names, if there is such a file. Throws UserError naming both if that
// checkpoint does not exist.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& checkpoint_dir);

// Resolves a user's `folder`: checkpoint `tag` in it or, without a tag, `folder` itself or the checkpoint that its
// `latest` names. Throws UserError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder, const std::string& tag = "");

// The run that saved the checkpoint in `folder`, from its manifest; empty for DeepSpeed's own checkpoints, which have
// none. Throws as read_manifest does.
RunRecord run_of(const std::filesystem::path& folder);

}  // namespace mpzero::io
