#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/file_system.hpp"
#include "io/locks/export_lock.hpp"

namespace mpzero::io {

// What a file of this name is to an export of any format.
enum class ExportRole {
  kNone,    // no part of one: a tokenizer, a README
  kConfig,  // config.json, without which transformers loads nothing
  kEntry,   // what a reader opens first: all weights in one file, or the index of the shards
  kShard,   // what it finds through the index
};
ExportRole role_of(std::string_view file_name);

// An output folder while one conversion is at work there. It holds one export at most, and a reader finds a whole one
// or nothing that loads, also after a kill or a power failure at any moment:
//
//   what is in the folder                                                     what loads
//   former export, `.zero_to_fp32.<owner>.tmp` growing                        the former
//   former export, `.zero_to_fp32.ready`: every new file, synced, and a list  the former
//   less config.json                                                          nothing
//   less the former's index, or single file of another name                   nothing
//   less the former's shards; new shards come                                 nothing
//   the new single file or index comes                                        nothing (without config.json)
//   the new config.json comes                                                 the new
//   less `.zero_to_fp32.ready`                                                the new
//
// Once `.zero_to_fp32.ready` is there, the next conversion ends what was begun before it does anything else. Where the
// export is one file that replaces one file, and config.json says what it said, a single rename does it all.
class ExportFolder {
 public:
  // One sentence for the user.
  using OnWarning = std::function<void(const std::string&)>;

  // Makes the folder if need be, locks it, ends what a killed conversion has begun and makes an empty staging folder.
  // Removes the staging folders of conversions that are dead for certain, and warns of others. Throws UserError where
  // another conversion is at work there.
  ExportFolder(std::filesystem::path folder, FileSystem& files, const OnWarning& warn);
  // Unless replace_former() has begun, all is as it was before.
  ~ExportFolder();
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  // Where the new files grow, under their final names.
  const std::filesystem::path& staging() const { return staging_; }
  // Makes the files of these names, all that are in the staging folder, whole and synced, the folder's export. Returns
  // the names of the former one's files, sorted. Throws UserError, before anything has changed, where a folder has the
  // name of a file, and where another conversion was at work in the folder in spite of the lock: then nothing is known
  // of what lies there.
  std::vector<std::string> replace_former(std::span<const std::string> names);

 private:
  ExportFolder(std::filesystem::path folder, FileSystem& files);
  void clean_up(const OnWarning& warn);
  // The one file that has to be renamed to have all of the export in place; empty: there are more.
  std::string only_change(std::span<const std::string> names, std::span<const std::string> former) const;

  FileSystem& files_;
  std::filesystem::path folder_;
  bool made_folder_;
  std::optional<ExportLock> lock_;
  std::filesystem::path staging_;
};

}  // namespace mpzero::io
