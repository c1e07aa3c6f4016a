#include "io/weights/export_folder.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "io/peft/peft_config.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr const char* kStagingName = ".zero_to_fp32.tmp";

// Removes leading digits of `text`. Returns false if there are fewer than `least`.
bool skip_digits(std::string_view& text, size_t least) {
  const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(count);
  return count >= least;
}

bool skip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "00001-of-00003"
bool skip_shard_number(std::string_view& text) {
  constexpr size_t kDigits = 5;
  return skip_digits(text, kDigits) && skip(text, "-of-") && skip_digits(text, kDigits);
}

// Returns the type of `path` without following links.
fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (error && error != std::errc::no_such_file_or_directory) throw_system_error("access", path, error.value());
  return status.type();
}

bool has_entry(const fs::path& path) { return type_of(path) != fs::file_type::not_found; }

// Returns the sorted names of exported files in any format.
std::vector<std::string> exported_names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (role_of(name) != ExportRole::kNone) names.push_back(std::move(name));
  }
  if (error) throw_system_error("list", folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

ExportRole role_of(std::string_view file_name) {
  if (file_name == kConfigName || file_name == kAdapterConfigName) return ExportRole::kConfig;
  if (file_name == kHdf5Name || file_name == kAdapterWeightsName) return ExportRole::kEntry;
  std::string_view rest = file_name;
  std::string_view extension = ".safetensors";
  if (!skip(rest, "model")) {
    if (!skip(rest, "pytorch_model")) return ExportRole::kNone;
    extension = ".bin";
  }
  if (skip(rest, "-")) {
    return skip_shard_number(rest) && rest == extension ? ExportRole::kShard : ExportRole::kNone;
  }
  return skip(rest, extension) && (rest.empty() || rest == kIndexSuffix) ? ExportRole::kEntry : ExportRole::kNone;
}

ExportFolder::ExportFolder(fs::path folder, FileSystem& files)
    : files_(files), folder_(std::move(folder)), made_folder_(!has_entry(folder_)), staging_(folder_ / kStagingName) {
  make_folders(folder_, files_);
  if (const int error = files_.make_folder(staging_); error == EEXIST) {
    throw_user_error(
        "{} exists: another conversion to this folder is running or was killed; wait until it ends, or delete {} if no "
        "conversion is running, or use another OUTPUT_DIR",
        staging_.string(), staging_.string());
  } else if (error != 0) {
    throw_system_error("create folder", staging_, error);
  }
  try {
    held_.emplace(staging_);
    own_ = inode_of(staging_);
  } catch (...) {
    files_.remove_folder(staging_);
    throw;
  }
}

bool ExportFolder::has_staging() const { return own_ && inode_of(staging_) == own_; }

void ExportFolder::check_room(int64_t bytes) const {
  struct statvfs status {};
  if (::statvfs(staging_.c_str(), &status) != 0 || status.f_blocks == 0) return;
  const auto blocks = ::geteuid() == 0 ? status.f_bfree : status.f_bavail;
  const double room = static_cast<double>(blocks) * static_cast<double>(status.f_frsize);
  if (room >= static_cast<double>(bytes)) return;
  throw_user_error(
      "cannot write {:.3f} GB of weights to {}: the disk has {:.3f} GB free, and the existing export is replaced only "
      "at the end; free some space or use a folder on a different disk",
      static_cast<double>(bytes) / 1e9, folder_.string(), room / 1e9);
}

void ExportFolder::remove_former(std::span<const std::string> former, ExportRole role) {
  for (const std::string& name : former) {
    if (role_of(name) != role) continue;
    if (const int error = files_.remove_file(folder_ / name); error != 0 && error != ENOENT) {
      throw_system_error("remove", folder_ / name, error);
    }
  }
  sync_folder(folder_, files_);
}

void ExportFolder::move_in(std::span<const std::string> names, ExportRole role) {
  for (const std::string& name : names) {
    if (role_of(name) == role) rename_path(staging_ / name, folder_ / name, files_);
  }
  sync_folder(folder_, files_);
}

std::vector<std::string> ExportFolder::replace_former(std::span<const std::string> names) {
  const std::vector<std::string> former = exported_names_in(folder_);
  for (const std::string& name : former) {
    if (type_of(folder_ / name) != fs::file_type::directory) continue;
    throw_user_error("{} is a folder with the name of an exported file; move the folder or use another OUTPUT_DIR",
                     (folder_ / name).string());
  }
  if (!has_staging()) {
    throw_user_error(
        "{} was removed during the conversion, perhaps by another conversion; run the conversion to {} again",
        staging_.string(), folder_.string());
  }
  sync_folder(staging_, files_);
  const auto explain = [&](const Error& error) {
    return fmt::format("{}; the export in {} may be incomplete: run the conversion again", error.what(),
                       folder_.string());
  };
  try {
    for (const ExportRole role : {ExportRole::kConfig, ExportRole::kEntry, ExportRole::kShard}) {
      remove_former(former, role);
    }
    for (const ExportRole role : {ExportRole::kShard, ExportRole::kEntry, ExportRole::kConfig}) move_in(names, role);
  } catch (const UserError& error) {
    throw UserError(explain(error));
  } catch (const Error& error) {
    throw Failure(explain(error));
  }
  return former;
}

ExportFolder::~ExportFolder() {
  try {
    if (has_staging()) remove_folder(staging_, files_);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the next conversion reports the folder
  }
  if (made_folder_) files_.remove_folder(folder_);  // fails unless the folder is empty
}

}  // namespace mpzero::io
