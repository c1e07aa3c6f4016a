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

// Role of a file in an export.
enum class ExportRole {
  kNone,    // not part of an export, for example a tokenizer or a README
  kConfig,  // config.json or adapter_config.json, which transformers and PEFT require
  kEntry,   // opened first by a reader: a single file with all weights or adapters, or the index of the shards
  kShard,   // found through the index
};
ExportRole role_of(std::string_view file_name);

// An output folder during a conversion. At any time, including after a crash or a power failure, readers can load
// either one complete export or no export:
//
//   state of the folder                                                       loadable export
//   previous export, incomplete `.zero_to_fp32.<owner>.tmp`                   previous
//   previous export, complete and synced `.zero_to_fp32.ready`                previous
//   config.json removed                                                       none
//   previous index, or single file with a different name, removed             none
//   previous shards removed, new shards moved                                 none
//   new single file or index moved                                            none (config.json is missing)
//   new config.json moved                                                     new
//   `.zero_to_fp32.ready` removed                                             new
//
// If `.zero_to_fp32.ready` exists, the next conversion first completes the previous one. If a single-file export
// replaces a single file and config.json is unchanged, one rename is sufficient. PEFT adapters are also an export, with
// adapter_config.json in place of config.json.
class ExportFolder {
 public:
  // Receives one sentence for the user.
  using OnWarning = std::function<void(const std::string&)>;

  // Creates the folder if necessary, locks it, completes an interrupted conversion and creates an empty staging folder.
  // Removes staging folders of conversions that have ended, and warns about staging folders in an unknown state. Throws
  // UserError if another conversion is using the folder.
  ExportFolder(std::filesystem::path folder, FileSystem& files, const OnWarning& warn);
  // Restores the original state of the folder unless replace_former() was called.
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  // Returns the folder for the new files, which must have their final names.
  const std::filesystem::path& staging() const { return staging_; }
  // Throws UserError if the disk has less than `bytes` of free space. No-op if the file system does not report free
  // space.
  void check_room(int64_t bytes) const;
  // Replaces the folder's export with the files `names`. These must be all files in the staging folder, complete and
  // synced. Returns the sorted file names of the previous export. Before any change, throws UserError if a file name is
  // already the name of a folder, and FolderTaken if another conversion has the lock. Also throws UserError if another
  // conversion used the folder despite the lock, which leaves the folder in an unknown state.
  std::vector<std::string> replace_former(std::span<const std::string> names);

 private:
  ExportFolder(std::filesystem::path folder, FileSystem& files);
  void clean_up(const OnWarning& warn);
  // Returns the name of the only file to rename, or an empty string if the export needs several renames.
  std::string only_change(std::span<const std::string> names, std::span<const std::string> former) const;

  FileSystem& files_;
  std::filesystem::path folder_;
  bool made_folder_;
  std::optional<FolderLock> lock_;
  std::filesystem::path staging_;
};

}  // namespace mpzero::io
