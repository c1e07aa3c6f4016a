#include "io/weights/export_folder.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "io/files/atomic_file.hpp"
#include "io/files/open_folder.hpp"
#include "io/peft/peft_config.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::string_view kPrefix = ".zero_to_fp32.";
constexpr std::string_view kStagingSuffix = ".tmp";
constexpr const char* kReadyName = ".zero_to_fp32.ready";
constexpr const char* kListName = ".files";  // in the ready folder, one name per line
constexpr int64_t kMaxListBytes = int64_t{1} << 24;
constexpr int64_t kMaxConfigBytes = int64_t{1} << 24;

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

using Inodes = std::map<std::string, std::optional<Inode>>;

Inodes inodes_of(std::span<const std::string> names, const fs::path& folder) {
  Inodes inodes;
  for (const std::string& name : names) inodes[name] = inode_of(folder / name);
  return inodes;
}

// Thrown if the lock did not exclude another conversion because the lock file was removed or locks are local to a host.
class Disturbed final : public UserError {
 public:
  explicit Disturbed(const fs::path& folder)
      : UserError(fmt::format("another conversion into {0} was active at the same time, so the state of the folder is "
                              "unknown; wait for the other conversion, then convert into {0} again",
                              folder.string())) {}
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw_system_error("list", folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the names of exported files in any format.
std::vector<std::string> exported_names_in(const fs::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return role_of(name) == ExportRole::kNone; });
  return names;
}

bool contains(std::span<const std::string> names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns a name with the host, the PID, the process start time, and a random suffix per conversion.
std::string own_staging_name() {
  std::string host = host_name();
  std::replace(host.begin(), host.end(), '/', '_');
  std::random_device entropy;
  return fmt::format("{}{}.{}.{}.{:08x}{}", kPrefix, host, ::getpid(), process_start(::getpid()), entropy(),
                     kStagingSuffix);
}

// Returns true if the process that created this staging folder has ended. Returns false for processes on other hosts.
bool is_of_dead_process(std::string_view name) {
  if (!skip(name, kPrefix)) return false;
  std::string host = host_name();
  std::replace(host.begin(), host.end(), '/', '_');
  if (!skip(name, host) || !skip(name, ".")) return false;
  std::istringstream fields{std::string(name)};
  int64_t process = 0;
  int64_t start = 0;
  char dot = 0;
  if (!(fields >> process >> dot >> start) || dot != '.' || process <= 0) return false;
  return life_of_process(process, start) == Life::kDead;
}

void remove_if_there(const fs::path& path, FileSystem& files) {
  if (const int error = files.remove_file(path); error != 0 && error != ENOENT) {
    throw_system_error("remove", path, error);
  }
}

std::vector<std::string> read_list(const fs::path& path) {
  std::istringstream lines(read_text_file(path, kMaxListBytes));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) {
    if (role_of(name) == ExportRole::kNone) {
      throw_user_error("{} is damaged: line {} is not the name of an exported file; delete {} and convert again",
                       path.string(), names.size() + 1, path.parent_path().string());
    }
    names.push_back(std::move(name));
  }
  return names;
}

// Moves the files of a ready folder to the output folder. Resumes an interrupted move.
class Replacement {
 public:
  // `own` is the inode of the ready folder.
  Replacement(fs::path folder, const Inode& own, FileSystem& files)
      : files_(files),
        folder_(std::move(folder)),
        ready_(folder_ / kReadyName),
        own_(own),
        names_(read_list(ready_ / kListName)) {
    for (const std::string& name : names_) {
      if (has_entry(ready_ / name)) waiting_.push_back(name);
    }
  }

  void run() {
    const bool weights_wait = std::any_of(waiting_.begin(), waiting_.end(),
                                          [](const std::string& name) { return role_of(name) != ExportRole::kConfig; });
    if (weights_wait) {
      remove_former(ExportRole::kConfig);
      remove_former(ExportRole::kEntry);
    }
    remove_former(ExportRole::kShard);
    for (const ExportRole role : {ExportRole::kShard, ExportRole::kEntry, ExportRole::kConfig}) move_in(role);
  }

 private:
  // Called before each change because another conversion may complete this export.
  void check_own() const {
    if (inode_of(ready_) != own_) throw Disturbed(folder_);
  }

  // Removes previous files. Keeps files that are already replaced, and weights that will be replaced atomically.
  void remove_former(ExportRole role) {
    bool removed = false;
    for (const std::string& name : exported_names_in(folder_)) {
      if (role_of(name) != role) continue;
      const bool is_weights = role != ExportRole::kConfig && !name.ends_with(kIndexSuffix);
      if (contains(names_, name) && (is_weights || !contains(waiting_, name))) continue;
      check_own();
      remove_if_there(folder_ / name, files_);
      removed = true;
    }
    if (removed) sync_folder(folder_, files_);
  }

  void move_in(ExportRole role) {
    bool moved = false;
    for (const std::string& name : waiting_) {
      if (role_of(name) != role) continue;
      check_own();
      rename_path(ready_ / name, folder_ / name, files_);
      moved = true;
    }
    if (!moved) return;
    sync_folder(folder_, files_);
    sync_folder(ready_, files_);
  }

  FileSystem& files_;
  fs::path folder_;
  fs::path ready_;
  Inode own_;
  std::vector<std::string> names_;
  std::vector<std::string> waiting_;
};

// Renames the ready folder to a unique name first, so that another conversion's new ready folder is not removed.
void remove_ready(const fs::path& folder, const Inode& own, FileSystem& files) {
  const fs::path ready = folder / kReadyName;
  const fs::path removed = folder / own_staging_name();
  if (inode_of(ready) != own) throw Disturbed(folder);
  rename_path(ready, removed, files);
  if (inode_of(removed) != own) {
    files.rename(removed, ready);
    throw Disturbed(folder);
  }
  remove_folder(removed, files);
  sync_folder(folder, files);
}

// Completes the export from the ready folder with inode `own`.
void finish(const fs::path& folder, const Inode& own, FileSystem& files) {
  const fs::path ready = folder / kReadyName;
  try {
    // The list is removed after all moves. A missing list means that the move is complete.
    if (has_entry(ready / kListName)) {
      Replacement(folder, own, files).run();
      remove_if_there(ready / kListName, files);
    }
  } catch (const Error&) {
    if (inode_of(ready) != own) throw Disturbed(folder);
    throw;
  }
  remove_ready(folder, own, files);
}

// Throws Disturbed unless the export consists of these files.
void check_result(const fs::path& folder, const Inodes& expected) {
  if (inodes_of(exported_names_in(folder), folder) != expected) throw Disturbed(folder);
}

// Completes an interrupted conversion.
void finish_former(const fs::path& folder, FileSystem& files) {
  const fs::path ready = folder / kReadyName;
  const std::optional<Inode> own = inode_of(ready);
  if (!own || type_of(ready) != fs::file_type::directory) {
    throw_user_error("{} was not made by a conversion; delete it", ready.string());
  }
  const OpenFolder held(ready);  // prevents reuse of the inode
  finish(folder, *own, files);
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
    : files_(files), folder_(std::move(folder)), made_folder_(!has_entry(folder_)) {
  make_folders(folder_, files_);
}

ExportFolder::ExportFolder(fs::path folder, FileSystem& files, const OnWarning& warn)
    : ExportFolder(std::move(folder), files) {
  lock_.emplace(folder_,
                FolderLock::Options{
                    .patience = std::chrono::milliseconds(0), .purpose = FolderLock::Purpose::kExporting, .say = warn},
                files_);
  if (has_entry(folder_ / kReadyName)) {
    finish_former(folder_, files_);
    warn(fmt::format("completed an interrupted conversion into {}.", folder_.string()));
  }
  clean_up(warn);
  const fs::path staging = folder_ / own_staging_name();
  if (const int error = files_.make_folder(staging); error != 0) throw_system_error("create folder", staging, error);
  staging_ = staging;
}

void ExportFolder::check_room(int64_t bytes) const {
  struct statvfs status {};
  if (::statvfs(staging_.c_str(), &status) != 0 || status.f_blocks == 0) return;
  const auto blocks = ::geteuid() == 0 ? status.f_bfree : status.f_bavail;
  const double room = static_cast<double>(blocks) * static_cast<double>(status.f_frsize);
  if (room >= static_cast<double>(bytes)) return;
  throw_user_error(
      "cannot write {:.3f} GB of weights to {}: the disk has {:.3f} GB free, and the existing export is only replaced "
      "at the end; free some space or use a folder on a different disk",
      static_cast<double>(bytes) / 1e9, folder_.string(), room / 1e9);
}

void ExportFolder::clean_up(const OnWarning& warn) {
  for (const std::string& name : names_in(folder_)) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kStagingSuffix)) continue;
    const std::string path = (folder_ / name).string();
    if (type_of(path) != fs::file_type::directory) continue;
    if (!is_of_dead_process(name)) {
      warn(fmt::format(
          "{} may belong to a conversion on another machine; if no conversion is running, delete the folder.", path));
      continue;
    }
    try {
      remove_folder(path, files_);
    } catch (const Error& error) {
      warn(fmt::format("{}: files of an interrupted conversion remain.", error.what()));
    }
  }
}

std::string ExportFolder::only_change(std::span<const std::string> names, std::span<const std::string> former) const {
  std::vector<std::string> changes;
  for (const std::string& name : names) {
    const bool same =
        role_of(name) == ExportRole::kConfig && contains(former, name) &&
        read_text_file(staging_ / name, kMaxConfigBytes) == read_text_file(folder_ / name, kMaxConfigBytes);
    if (!same) changes.push_back(name);
  }
  const bool all_stay =
      std::all_of(former.begin(), former.end(), [&](const std::string& name) { return contains(names, name); });
  return all_stay && changes.size() == 1 ? changes.front() : "";
}

std::vector<std::string> ExportFolder::replace_former(std::span<const std::string> names) {
  lock_->check();
  std::vector<std::string> former = exported_names_in(folder_);
  for (const std::string& name : former) {
    if (type_of(folder_ / name) != fs::file_type::directory) continue;
    throw_user_error("{} is a folder with the name of an exported file; move the folder or use another OUTPUT_DIR",
                     (folder_ / name).string());
  }
  if (const std::string name = only_change(names, former); !name.empty()) {
    Inodes expected = inodes_of(former, folder_);
    expected[name] = inode_of(staging_ / name);
    rename_path(staging_ / name, folder_ / name, files_);
    sync_folder(folder_, files_);
    check_result(folder_, expected);
    return former;
  }
  std::string list;
  for (const std::string& name : names) list += name + '\n';
  write_text_file(staging_ / kListName, list, files_);
  sync_folder(staging_, files_);
  const Inodes expected = inodes_of(names, staging_);
  const std::optional<Inode> own = inode_of(staging_);
  if (!own) throw Disturbed(folder_);
  const OpenFolder held(staging_);  // prevents reuse of the inode
  rename_path(staging_, folder_ / kReadyName, files_);
  staging_.clear();
  const auto explain = [&](const Error& error) {
    return fmt::format("{}; the new export is complete, and the next conversion into {} cleans up", error.what(),
                       folder_.string());
  };
  try {
    sync_folder(folder_, files_);
    finish(folder_, *own, files_);
    check_result(folder_, expected);
  } catch (const Disturbed&) {
    throw;
  } catch (const UserError& error) {
    throw UserError(explain(error));
  } catch (const Error& error) {
    throw Failure(explain(error));
  }
  return former;
}

ExportFolder::~ExportFolder() {
  try {
    if (!staging_.empty()) remove_folder(staging_, files_);
  } catch (const std::exception&) {
    // The next conversion retries and reports errors.
  }
  lock_.reset();
  if (made_folder_) files_.remove_folder(folder_);  // fails unless the folder is empty
}

}  // namespace mpzero::io
