#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/file_system.hpp"
#include "io/files/open_folder.hpp"

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
//   state of the folder                                           loadable export
//   previous export, incomplete `.zero_to_fp32.tmp`               previous
//   config.json removed                                           none
//   previous index or single file, then previous shards, removed  none
//   new shards, then new index or single file, moved              none (config.json is missing)
//   new config.json moved                                         new
//
// Each state is synced before the next. A conversion that is killed leaves the staging folder `.zero_to_fp32.tmp`,
// which prevents other conversions until the user deletes the folder. PEFT adapters are also an export, with
// adapter_config.json in place of config.json.
class ExportFolder {
 public:
  // Creates the output folder, if necessary, and an empty staging folder. Throws UserError if the staging folder
  // exists.
  ExportFolder(std::filesystem::path folder, FileSystem& files);
  // Removes the staging folder. Also removes the output folder if this object created the folder and the folder is
  // empty.
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  // Returns the folder for the new files, which must have their final names.
  const std::filesystem::path& staging() const { return staging_; }
  // Throws UserError if the disk has less than `bytes` of free space. Does nothing if the file system does not report
  // its free space.
  void check_room(int64_t bytes) const;
  // Replaces the folder's export with the files `names`. `names` must list all files in the staging folder, which must
  // be complete and synced. Returns the sorted file names of the previous export. Before any change, throws UserError
  // if a file name is already the name of a folder, or if the staging folder was removed. After an error, the
  // conversion must be repeated.
  std::vector<std::string> replace_former(std::span<const std::string> names);

 private:
  bool has_staging() const;
  void remove_former(std::span<const std::string> former, ExportRole role);
  void move_in(std::span<const std::string> names, ExportRole role);

  FileSystem& files_;
  std::filesystem::path folder_;
  bool made_folder_;
  std::filesystem::path staging_;
  std::optional<OpenFolder> held_;  // keeps the staging folder open, so that its inode is not reused
  std::optional<Inode> own_;        // inode of the staging folder
};

}  // namespace mpzero::io
