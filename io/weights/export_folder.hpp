#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/file_system.hpp"
#include "io/locks/folder_lock.hpp"

namespace mpzero::io {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kHdf5Name = "model.h5";

// The role of a file name in an export of any format.
enum class ExportRole {
  kNone,    // not part of an export: a tokenizer, a README
  kConfig,  // config.json or adapter_config.json, without which transformers and PEFT load nothing
  kEntry,   // opened first by a reader: all weights or adapters in one file, or the index of the shards
  kShard,   // found through the index
};
ExportRole role_of(std::string_view file_name);

// An output folder during a conversion. It holds at most one export. A reader finds a complete one or none that loads,
// also after a kill or a power failure at any moment:
//
//   content of the folder                                                     what loads
//   former export, `.zero_to_fp32.<owner>.tmp` growing                        the former
//   former export, `.zero_to_fp32.ready`: every new file, synced, and a list  the former
//   config.json removed                                                       nothing
//   the former's index, or single file of another name, removed               nothing
//   the former's shards removed; new shards moved here                        nothing
//   the new single file or index moved here                                   nothing (without config.json)
//   the new config.json moved here                                            the new
//   `.zero_to_fp32.ready` removed                                             the new
//
// Once `.zero_to_fp32.ready` exists, the next conversion completes that work before it does anything else. If the
// export is one file that replaces one file, and config.json is unchanged, a single rename is enough. Adapters in
// PEFT's format are also an export, with adapter_config.json as their config.json.
class ExportFolder {
 public:
  // Receives one sentence for the user.
  using OnWarning = std::function<void(const std::string&)>;

  // Creates the folder if needed, locks it, completes what a killed conversion has begun and creates an empty staging
  // folder. Removes staging folders of conversions that have certainly ended, and warns about others. Throws UserError
  // if another conversion uses the folder.
  ExportFolder(std::filesystem::path folder, FileSystem& files, const OnWarning& warn);
  // Leaves the folder as it was before, unless replace_former() has begun.
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  // Where the new files are written, under their final names.
  const std::filesystem::path& staging() const { return staging_; }
  // Throws UserError unless the disk has room for `bytes`. If the file system does not report its free space, the
  // writes themselves fail.
  void check_room(int64_t bytes) const;
  // Replaces the folder's export with the files of these names, which are all files in the staging folder, complete and
  // synced. Returns the file names of the former export, sorted. Throws UserError, before any change, if a folder has
  // the name of a file, and FolderTaken if another conversion holds the lock by now. Also throws UserError if another
  // conversion used the folder despite the lock: then its state is unknown.
  std::vector<std::string> replace_former(std::span<const std::string> names);

 private:
  ExportFolder(std::filesystem::path folder, FileSystem& files);
  void clean_up(const OnWarning& warn);
  // The only file that must be renamed to complete the export. Empty: there are several.
  std::string only_change(std::span<const std::string> names, std::span<const std::string> former) const;

  FileSystem& files_;
  std::filesystem::path folder_;
  bool made_folder_;
  std::optional<FolderLock> lock_;
  std::filesystem::path staging_;
};

}  // namespace mpzero::io
