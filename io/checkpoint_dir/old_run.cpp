#include "io/checkpoint_dir/old_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "old-";
constexpr std::string_view kMovingSuffix = ".moving";
// Reserved names that runs do not use for other files.
constexpr std::string_view kListName = ".moving";
constexpr std::string_view kNewListName = ".moving.tmp";
constexpr int64_t kMaxListBytes = int64_t{1} << 26;

// Returns n of "old-<n>" or "old-<n>.moving".
std::optional<int64_t> number_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kMovingSuffix)) name.remove_suffix(kMovingSuffix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size() || number < 1) return std::nullopt;
  return number;
}

// Returns true if `path` exists, without following links.
bool has_entry(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (error && error != std::errc::no_such_file_or_directory) throw_system_error("access", path, error.value());
  return fs::exists(status);
}

std::vector<std::string> read_list(const fs::path& path) {
  std::istringstream lines(read_text_file(path, kMaxListBytes));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw_user_error(
          "{} is damaged: line {} is not a file name; move all other files in this folder back to {}, then delete "
          "the folder",
          path.string(), names.size() + 1, path.parent_path().parent_path().string());
    }
    names.push_back(std::move(name));
  }
  return names;
}

// Returns false if the list was not written before a crash.
bool holds_something(const fs::path& moving) {
  std::error_code error;
  for (fs::directory_iterator entry(moving, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() != kNewListName) return true;
  }
  if (error) throw_system_error("list", moving, error.value());
  return false;
}

// A missing list means that all files have been moved.
fs::path finish(const fs::path& moving, FileSystem& files) {
  const fs::path checkpoint_dir = moving.parent_path();
  if (const fs::path list = moving / kListName; has_entry(list)) {
    for (const std::string& name : read_list(list)) {
      if (!has_entry(checkpoint_dir / name)) continue;
      if (has_entry(moving / name)) {
        throw_user_error("{} and {} both exist; move one of them elsewhere", (checkpoint_dir / name).string(),
                         (moving / name).string());
      }
      rename_path(checkpoint_dir / name, moving / name, files);
    }
    sync_folder(moving, files);
    sync_folder(checkpoint_dir, files);
    if (const int error = files.remove_file(list); error != 0) throw_system_error("remove", list, error);
    sync_folder(moving, files);
  }
  fs::path done = moving;
  done.replace_extension();
  rename_path(moving, done, files);
  sync_folder(checkpoint_dir, files);
  return done;
}

}  // namespace

std::string next_old_name(const fs::path& checkpoint_dir) {
  int64_t last = 0;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    last = std::max(last, number_of(folder.filename().string()).value_or(0));
  }
  return fmt::format("{}{}", kPrefix, last + 1);
}

fs::path move_aside(const fs::path& checkpoint_dir, const std::vector<std::string>& names, FileSystem& files) {
  std::string list;
  for (const std::string& name : names) {
    if (name.find('\n') != std::string::npos) {
      throw_user_error("the name of {} contains a line break; rename it", (checkpoint_dir / name).string());
    }
    if (name == kListName || name == kNewListName) {
      throw_user_error("{} has a name that --overwrite reserves; rename it", (checkpoint_dir / name).string());
    }
    list += name + '\n';
  }
  const fs::path moving = checkpoint_dir / (next_old_name(checkpoint_dir) + std::string(kMovingSuffix));
  make_folders(moving, files);
  replace_text_file(moving / kListName, list, files);
  return finish(moving, files);
}

std::vector<fs::path> finish_moving(const fs::path& checkpoint_dir, FileSystem& files) {
  std::vector<fs::path> finished;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    const std::string name = folder.filename().string();
    if (!name.ends_with(kMovingSuffix) || !number_of(name)) continue;
    if (holds_something(folder)) {
      finished.push_back(finish(folder, files));
    } else {
      remove_folder(folder, files);
    }
  }
  return finished;
}

}  // namespace mpzero::io
