#include "io/checkpoint_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_manifest.hpp"
#include "io/deepspeed_checkpoint_files.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLatestName = "latest";
constexpr std::string_view kStagingSuffix = ".tmp";
constexpr std::string_view kReplacedSuffix = ".replaced";
constexpr int64_t kMaxLatestBytes = 4096;

fs::path with_suffix(const fs::path& folder, std::string_view suffix) { return folder.string() + std::string(suffix); }

// The tag whose leftover with this suffix a folder of this name is: only names that saving or pruning gives are taken
// for leftovers.
std::optional<std::string> leftover_of(std::string name, std::string_view suffix, const std::string& tag) {
  if (!name.ends_with(suffix)) return std::nullopt;
  name.resize(name.size() - suffix.size());
  if ((tag.empty() || name != tag) && !step_of_tag(name, "")) return std::nullopt;
  return name;
}

bool is_plain_name(const std::string& tag) {
  const bool printable = std::all_of(tag.begin(), tag.end(), [](unsigned char c) { return c >= ' ' && c != 0x7F; });
  return printable && !tag.empty() && tag[0] != '.' && tag.find('/') == std::string::npos && tag != kLatestName;
}

// What a damaged file holds, fit for a sentence.
std::string printable(const std::string& text) {
  constexpr size_t kLongest = 60;
  std::string shown;
  for (const char c : text.substr(0, kLongest)) shown += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kLongest ? shown + "..." : shown;
}

bool try_to_remove(const fs::path& folder, FileSystem& files) noexcept {
  try {
    remove_folder(folder, files);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Swaps two folders in one step; false where the file system cannot.
bool exchange(const fs::path& a, const fs::path& b, FileSystem& files) {
  const int error = files.exchange(a, b);
  if (error == 0) return true;
  if (error == EINVAL || error == ENOSYS || error == ENOTSUP) return false;
  throw_system_error("replace", b, error);
}

}  // namespace

std::optional<int64_t> step_of_tag(std::string_view tag, std::string_view prefix) {
  constexpr std::string_view kEnd = "steps";
  const size_t dash = tag.rfind('-');
  if (dash == std::string_view::npos || !tag.ends_with(kEnd)) return std::nullopt;
  if (dash == 0 || (!prefix.empty() && tag.substr(0, dash) != prefix)) return std::nullopt;
  tag.remove_prefix(dash + 1);
  tag.remove_suffix(std::min(kEnd.size(), tag.size()));
  int64_t step = 0;
  const auto [end, error] = std::from_chars(tag.data(), tag.data() + tag.size(), step);
  if (tag.empty() || error != std::errc{} || end != tag.data() + tag.size() || step < 0) return std::nullopt;
  return step;
}

std::optional<std::string> replaced_tag(const std::string& folder_name) {
  return leftover_of(folder_name, kReplacedSuffix, "");
}

std::vector<fs::path> folders_in(const fs::path& parent) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) found.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw_system_error("list", parent, error.value());
  return found;
}

std::optional<std::string> latest_tag(const fs::path& checkpoint_dir) {
  const fs::path path = checkpoint_dir / kLatestName;
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (error) throw_system_error("look for", path, error.value());
    return std::nullopt;
  }
  std::string tag = read_text_file(path, kMaxLatestBytes);
  constexpr const char* kBlank = " \t\r\n";
  tag.erase(std::min(tag.find_last_not_of(kBlank) + 1, tag.size()));
  tag.erase(0, std::min(tag.find_first_not_of(kBlank), tag.size()));
  if (!is_plain_name(tag)) {
    throw_user_error(
        "{} names '{}', which is no checkpoint of {}: write the name of one of its folders into it, or "
        "choose a checkpoint with --resume_from_checkpoint DIR",
        path.string(), printable(tag), checkpoint_dir.string());
  }
  return tag;
}

fs::path staging_folder(const fs::path& checkpoint_dir, const std::string& tag) {
  return with_suffix(checkpoint_dir / tag, kStagingSuffix);
}

std::vector<std::string> clean_up(const fs::path& checkpoint_dir, const std::string& tag, FileSystem& files) {
  std::vector<std::string> removed;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    const std::string name = folder.filename().string();
    if (const auto of = leftover_of(name, kReplacedSuffix, tag)) {
      if (!fs::exists(checkpoint_dir / *of)) {
        rename_path(folder, checkpoint_dir / *of, files);
        continue;
      }
    } else if (!leftover_of(name, kStagingSuffix, tag)) {
      continue;
    }
    remove_folder(folder, files);
    removed.push_back(name);
  }
  return removed;
}

void begin_staging(const fs::path& checkpoint_dir, const std::string& tag, FileSystem& files) {
  if (!is_plain_name(tag)) throw_user_error("'{}' cannot be a checkpoint's name: it must be a plain folder name", tag);
  make_folders(checkpoint_dir, files);
  clean_up(checkpoint_dir, tag, files);
  make_folders(staging_folder(checkpoint_dir, tag), files);
}

void publish(const fs::path& checkpoint_dir, const std::string& tag, FileSystem& files) {
  const fs::path staging = staging_folder(checkpoint_dir, tag);
  const fs::path target = checkpoint_dir / tag;
  sync_folder(staging, files);
  fs::path outdated;
  if (!fs::exists(target)) {
    rename_path(staging, target, files);
  } else if (exchange(staging, target, files)) {
    outdated = staging;
  } else {
    outdated = with_suffix(target, kReplacedSuffix);
    rename_path(target, outdated, files);
    rename_path(staging, target, files);
  }
  sync_folder(checkpoint_dir, files);
  replace_text_file(checkpoint_dir / kLatestName, tag + "\n", files);
  // The checkpoint is whole and named: if what it replaced stays, the next save tries again to remove it.
  if (!outdated.empty()) try_to_remove(outdated, files);
}

void discard_staging(const fs::path& checkpoint_dir, const std::string& tag, FileSystem& files) noexcept {
  // If it stays, the next save removes it.
  try_to_remove(staging_folder(checkpoint_dir, tag), files);
}

void remove_checkpoints(const std::vector<fs::path>& folders, FileSystem& files) {
  std::vector<fs::path> doomed;
  for (const fs::path& folder : folders) {
    doomed.push_back(with_suffix(folder, kStagingSuffix));
    rename_path(folder, doomed.back(), files);
  }
  if (!folders.empty()) sync_folder(folders.front().parent_path(), files);
  for (const fs::path& folder : doomed) remove_folder(folder, files);
}

std::optional<fs::path> latest_checkpoint(const fs::path& checkpoint_dir) {
  const std::optional<std::string> tag = latest_tag(checkpoint_dir);
  if (!tag) return std::nullopt;
  fs::path folder = checkpoint_dir / *tag;
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  if (fs::path replaced = with_suffix(folder, kReplacedSuffix); fs::is_directory(replaced, error)) return replaced;
  throw_user_error(
      "{} names {}, but there is no folder {}: write the name of an existing checkpoint into it, or give "
      "--overwrite to start anew",
      (checkpoint_dir / kLatestName).string(), *tag, folder.string());
}

fs::path find_checkpoint(const fs::path& folder, const std::string& tag) {
  std::error_code error;
  if (fs::is_regular_file(folder, error)) {
    throw_user_error("{} is a file: name the folder that holds it", folder.string());
  }
  if (!fs::is_directory(folder, error)) {
    throw_user_error("there is no checkpoint folder {}: check the path", folder.string());
  }
  if (!tag.empty()) {
    if (!is_plain_name(tag) || !fs::is_directory(folder / tag, error)) {
      throw_user_error("there is no checkpoint '{}' in {}: check the tag", tag, folder.string());
    }
    return folder / tag;
  }
  if (fs::exists(folder / kManifestName, error) || is_deepspeed_checkpoint(folder)) return folder;
  if (const auto latest = latest_checkpoint(folder)) return *latest;
  throw_user_error("{} holds neither a file 'latest' nor a {}: name a folder of checkpoints or a checkpoint itself",
                   folder.string(), kManifestName);
}

}  // namespace mpzero::io
