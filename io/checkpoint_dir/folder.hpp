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

// Names and moves whole checkpoint folders. All of it is for rank 0 alone, except staging_folder.
//
// A checkpoint grows in `<tag>.<8 digits of its writer>.tmp` (`<tag>.tmp` without a writer): a writer is one start of a
// run, of 16 hexadecimal digits, so that two never write into one folder. It is renamed to `<tag>` when every byte and
// the manifest are on the disk, and is named by `latest` after that. A crash leaves at worst such a folder or, where
// the file system cannot swap two folders in one step, the former `<tag>` as `<tag>.replaced`; clean_up() sees to both.
namespace mpzero::io {

std::filesystem::path staging_folder(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                                     const std::string& writer = "");

// What an earlier save or pruning has left and could not be removed now. It takes up space and does no other harm.
struct Leftover {
  std::filesystem::path path;
  std::string problem;  // one sentence
};

// Puts back what a crash left as `.replaced` and removes what crashed saves and prunings have left: those of
// `writer` and those that name none, or, without `writer`, all, which is for the folder's owner alone (FolderLock).
struct CleanUp {
  std::vector<std::string> removed;
  std::vector<Leftover> left;
};
CleanUp clean_up(const std::filesystem::path& checkpoint_dir, const std::optional<std::string>& writer = std::nullopt,
                 FileSystem& files = disk());

// Cleans up after the writer and makes an empty staging folder. Throws where that folder itself cannot be made or
// emptied; returns what else stays. Throws UserError for a tag that is no plain folder name.
std::vector<Leftover> begin_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                                    const std::string& writer = "", FileSystem& files = disk());

// Makes the staging folder, complete and synced but for its folder entries, the checkpoint `<tag>`, and `latest` name
// it. `check` is called with the checkpoint that would be replaced, if there is one, and once more with what in fact
// was: where it throws, the former checkpoint is, or is again, where it was. Returns what of it could not be removed.
std::vector<Leftover> publish(const std::filesystem::path& checkpoint_dir, const std::string& tag,
                              const std::string& writer = "",
                              const std::function<void(const std::filesystem::path&)>& check = nullptr,
                              FileSystem& files = disk());

// Removes the staging folder; never throws.
void discard_staging(const std::filesystem::path& checkpoint_dir, const std::string& tag, const std::string& writer,
                     FileSystem& files = disk()) noexcept;

// Removes whole checkpoints of the run, so that a crash at no moment leaves half of one under its name. Returns those
// that stay, under their names or as leftovers.
std::vector<Leftover> remove_checkpoints(const std::vector<std::filesystem::path>& folders,
                                         const std::string& writer = "", FileSystem& files = disk());

// N of "<prefix>-<N>steps"; with an empty prefix, of a tag with any.
std::optional<int64_t> step_of_tag(std::string_view tag, std::string_view prefix);

// The tag whose former checkpoint a crash left under this name, "<tag>.replaced".
std::optional<std::string> replaced_tag(const std::string& folder_name);

// The folders in `parent`, and what the system cannot tell from one; none if it is not there.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& parent);

// The trimmed content of `latest`; nothing if there is no such file. Throws Damaged where it is no folder's name.
std::optional<std::string> latest_tag(const std::filesystem::path& checkpoint_dir);

// The checkpoint that `<checkpoint_dir>/latest` names, if there is such a file. Throws UserError naming both where it
// names nothing.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& checkpoint_dir);

// The checkpoint that a user means by `folder`: `tag` in it, or, without a tag, `folder` itself or what its `latest`
// names. Throws UserError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder, const std::string& tag = "");

// The run that saved the checkpoint in `folder`, as its manifest says; nothing is known of DeepSpeed's own, which have
// none. Throws as read_manifest.
RunRecord run_of(const std::filesystem::path& folder);

}  // namespace mpzero::io
