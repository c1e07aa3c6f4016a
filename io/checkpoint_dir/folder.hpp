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

// Creates, renames and removes checkpoint folders. Functions that change a folder must be called only on rank 0.
//
// A checkpoint is written to the staging folder `<tag>.<8 digits of its writer>.tmp`, or to `<tag>.tmp` without a
// writer. A writer is one attempt of a run, identified by 16 hexadecimal digits, so that two attempts never write to
// the same folder. After all files are synced, the folder is renamed to `<tag>` and `latest` is updated. A crash may
// leave a staging folder. If the file system cannot swap two folders atomically, a crash may also leave the previous
// `<tag>` as `<tag>.replaced`. clean_up() handles both cases.
namespace mpzero::io {

std::filesystem::path staging_folder(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                                     const std::string& writer = "");

// A folder that a save or pruning could not remove. The folder is harmless but occupies disk space.
struct Leftover {
  std::filesystem::path path;
  std::string problem;  // reason in one sentence
};

// Restores `.replaced` folders after a crash, and removes folders left behind by interrupted saves and interrupted
// pruning. If `writer` is given, removes only folders of that writer and folders without a writer. Only the owner of
// the checkpoint folder (FolderLock) may omit `writer`.
struct CleanUp {
  std::vector<std::string> removed;
  std::vector<Leftover> left;
};
CleanUp clean_up(const std::filesystem::path& checkpoint_dir, const std::optional<std::string>& writer = std::nullopt,
                 FileSystem& files = disk());

// Removes files left by interrupted saves of this writer and creates an empty staging folder. Throws if the staging
// folder cannot be created or emptied, or if the tag is not a plain folder name. Returns the folders that could not be
// removed.
std::vector<Leftover> begin_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                                    const std::string& writer = "", FileSystem& files = disk());

// Renames the complete staging folder to `<tag>` and updates `latest`. The caller must sync the files; the folder
// entries need not be synced. Calls `check` with an existing checkpoint `<tag>` before and after replacing it. If
// `check` throws, the existing checkpoint is kept or restored. Returns the folder of the replaced checkpoint if it
// could not be removed.
std::vector<Leftover> publish(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                              const std::string& writer = "",
                              const std::function<void(const std::filesystem::path&)>& check = nullptr,
                              FileSystem& files = disk());

// Removes the staging folder. Never throws.
void discard_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag, const std::string& writer,
                     FileSystem& files = disk()) noexcept;

// Removes checkpoints. A crash never leaves an incomplete checkpoint under its tag. Returns the folders that could not
// be removed.
std::vector<Leftover> remove_checkpoints(const std::vector<std::filesystem::path>& folders,
                                         const std::string& writer = "", FileSystem& files = disk());

// Returns N from the tag "<prefix>-<N>steps". An empty prefix matches any prefix.
std::optional<int64_t> step_of_tag(std::string_view tag, std::string_view prefix);

// Returns <tag> if `folder_name` is "<tag>.replaced", the old checkpoint that a crash during its replacement left
// behind. Otherwise, returns std::nullopt.
std::optional<std::string> replaced_tag(const std::string& folder_name);

// Returns the folders in `parent`, including entries of unknown type, or an empty list if `parent` does not exist.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& parent);

// Returns the trimmed content of `latest`, or std::nullopt if the file does not exist. Throws Damaged if the content is
// not a folder name.
std::optional<std::string> latest_tag(const std::filesystem::path& checkpoint_dir);

// Returns the target of `<checkpoint_dir>/latest`, or std::nullopt if the file does not exist. Throws UserError if the
// target does not exist.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& checkpoint_dir);

// Returns the checkpoint `tag` in `folder`. Without a tag, returns `folder` itself if it is a checkpoint, or the target
// of its `latest`. Throws UserError if the checkpoint does not exist.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder, const std::string& tag = "");

// Returns the subfolders with checkpoints, i.e. with a `latest` file, in alphabetical order.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& folder);

// Returns the last clause of an error message, which suggests the folders from runs_in(), or `otherwise` if there are
// none.
std::string suggest_runs(const std::filesystem::path& folder, const std::string& otherwise);

// Returns the run in the manifest of the checkpoint `folder`, or an empty record for DeepSpeed's own checkpoints, which
// have no manifest. See read_manifest() for errors.
RunRecord run_of(const std::filesystem::path& folder);

}  // namespace mpzero::io
