#include "io/checkpoint_folder.hpp"

#include <fcntl.h>
#include <stdio.h>

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

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLatestName = "latest";
constexpr std::string_view kStagingSuffix = ".tmp";
constexpr std::string_view kReplacedSuffix = ".replaced";
constexpr int64_t kMaxLatestBytes = 4096;

fs::path with_suffix(const fs::path& folder, std::string_view suffix) { return folder.string() + std::string(suffix); }

// N of "<prefix>-<N>steps".
std::optional<int64_t> step_of(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kEnd = "steps";
  if (!name.starts_with(prefix) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.size() <= 1 + kEnd.size() || name[0] != '-') return std::nullopt;
  name.remove_prefix(1);
  name.remove_suffix(kEnd.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

bool looks_like_tag(std::string_view name) {
  const size_t dash = name.rfind('-');
  return dash != std::string_view::npos && step_of(name, name.substr(0, dash)).has_value();
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

// The tag whose leftover with this suffix `folder` is: only names that saving or pruning gives are taken for leftovers.
std::optional<std::string> leftover_of(const fs::path& folder, std::string_view suffix, const std::string& tag) {
  std::string name = folder.filename().string();
  if (!name.ends_with(suffix)) return std::nullopt;
  name.resize(name.size() - suffix.size());
  if (name != tag && !looks_like_tag(name)) return std::nullopt;
  return name;
}

bool is_plain_name(const std::string& tag) {
  return !tag.empty() && tag[0] != '.' && tag.find('/') == std::string::npos && tag != kLatestName;
}

// Swaps two folders in one step; false where the file system cannot.
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  throw_system_error("replace", b, errno);
}

// The trimmed content of `latest`, checked to be a plain name; nothing if there is no such file.
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
        path.string(), tag, checkpoint_dir.string());
  }
  return tag;
}

}  // namespace

fs::path staging_folder(const fs::path& checkpoint_dir, const std::string& tag) {
  return with_suffix(checkpoint_dir / tag, kStagingSuffix);
}

void begin_staging(const fs::path& checkpoint_dir, const std::string& tag) {
  if (!is_plain_name(tag)) throw_user_error("'{}' cannot be a checkpoint's name: it must be a plain folder name", tag);
  make_folders(checkpoint_dir);
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    if (const auto of = leftover_of(folder, kReplacedSuffix, tag)) {
      if (fs::exists(checkpoint_dir / *of)) {
        remove_folder(folder);
      } else {
        rename_path(folder, checkpoint_dir / *of);
      }
    } else if (leftover_of(folder, kStagingSuffix, tag)) {
      remove_folder(folder);
    }
  }
  make_folders(staging_folder(checkpoint_dir, tag));
}

void publish(const fs::path& checkpoint_dir, const std::string& tag) {
  const fs::path staging = staging_folder(checkpoint_dir, tag);
  const fs::path target = checkpoint_dir / tag;
  sync_folder(staging);
  fs::path outdated;
  if (!fs::exists(target)) {
    rename_path(staging, target);
  } else if (exchange(staging, target)) {
    outdated = staging;
  } else {
    outdated = with_suffix(target, kReplacedSuffix);
    rename_path(target, outdated);
    rename_path(staging, target);
  }
  sync_folder(checkpoint_dir);
  replace_text_file(checkpoint_dir / kLatestName, tag + "\n");
  std::error_code ignored;  // the next save tries again
  if (!outdated.empty()) fs::remove_all(outdated, ignored);
}

void discard_staging(const fs::path& checkpoint_dir, const std::string& tag) noexcept {
  std::error_code ignored;
  fs::remove_all(staging_folder(checkpoint_dir, tag), ignored);
}

std::optional<fs::path> latest_checkpoint(const fs::path& checkpoint_dir) {
  const std::optional<std::string> tag = latest_tag(checkpoint_dir);
  if (!tag) return std::nullopt;
  fs::path folder = checkpoint_dir / *tag;
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  if (fs::path replaced = with_suffix(folder, kReplacedSuffix); fs::is_directory(replaced, error)) return replaced;
  throw_user_error(
      "{} names {}, but there is no folder {}: write the name of an existing checkpoint into it, or remove it "
      "to start anew",
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
  if (fs::exists(folder / kManifestName, error)) return folder;
  if (const auto latest = latest_checkpoint(folder)) return *latest;
  throw_user_error("{} holds neither a file 'latest' nor a {}: name a folder of checkpoints or a checkpoint itself",
                   folder.string(), kManifestName);
}

void prune_checkpoints(const fs::path& checkpoint_dir, const std::string& model_type, int64_t keep_last) {
  if (keep_last <= 0) return;
  const std::optional<std::string> latest = latest_tag(checkpoint_dir);
  std::vector<std::pair<int64_t, fs::path>> checkpoints;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    if (const auto step = step_of(folder.filename().string(), model_type)) checkpoints.emplace_back(*step, folder);
  }
  std::sort(checkpoints.begin(), checkpoints.end());
  const size_t kept = std::min(checkpoints.size(), static_cast<size_t>(keep_last));
  checkpoints.resize(checkpoints.size() - kept);
  for (const auto& [step, folder] : checkpoints) {
    if (folder.filename() == latest) continue;
    // Renamed first: half a checkpoint must never bear a checkpoint's name.
    const fs::path doomed = with_suffix(folder, kStagingSuffix);
    rename_path(folder, doomed);
    remove_folder(doomed);
  }
}

}  // namespace mpzero::io
