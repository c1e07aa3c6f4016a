#include "io/checkpoint_dir/folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "base/text/printable.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/run_record.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLatestName = "latest";
constexpr std::string_view kStagingSuffix = ".tmp";
constexpr std::string_view kReplacedSuffix = ".replaced";
constexpr int64_t kMaxLatestBytes = 4096;

fs::path with_suffix(const fs::path& folder, std::string_view suffix) { return folder.string() + std::string(suffix); }

// A folder left behind by an interrupted save or pruning: "<tag>.replaced", "<tag>.tmp" or "<tag>.<digits>.tmp".
struct LeftoverName {
  std::string tag;
  std::string digits;  // first digits of the writer's run id; empty if not in the name
  bool replaced = false;
};

bool is_short_run_id(std::string_view text) {
  return text.size() == short_run_id(std::string(16, '0')).size() &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Accepts only tags of the form "<prefix>-<N>steps", so that unrelated folders are never removed.
std::optional<LeftoverName> leftover_name(std::string name) {
  LeftoverName leftover;
  const auto take_suffix = [&name](std::string_view suffix) {
    if (!name.ends_with(suffix)) return false;
    name.resize(name.size() - suffix.size());
    return true;
  };
  leftover.replaced = take_suffix(kReplacedSuffix);
  if (!leftover.replaced && !take_suffix(kStagingSuffix)) return std::nullopt;
  if (const size_t dot = name.rfind('.');
      !leftover.replaced && dot != std::string::npos && is_short_run_id(std::string_view(name).substr(dot + 1))) {
    leftover.digits = name.substr(dot + 1);
    name.resize(dot);
  }
  if (!step_of_tag(name, "")) return std::nullopt;
  leftover.tag = std::move(name);
  return leftover;
}

bool is_plain_name(const std::string& tag) {
  const bool printable = std::all_of(tag.begin(), tag.end(), [](unsigned char c) { return c >= ' ' && c != 0x7F; });
  return printable && !tag.empty() && tag[0] != '.' && tag.find('/') == std::string::npos && tag != kLatestName;
}

// Returns the printable start of a damaged file for a message.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 60;
  return printable(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
}

// Runs `work`. If `work` throws, adds `path` and the error to `left`.
bool attempt(const fs::path& path, std::vector<Leftover>& left, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    left.push_back({path, error.what()});
    return false;
  }
}

// Restores the previous checkpoint if a crash left no new checkpoint. Returns true if it was restored.
bool put_back(const fs::path& replaced, const fs::path& target, FileSystem& files) {
  if (path_exists(target)) return false;
  rename_path(replaced, target, files);
  return true;
}

// Swaps two folders atomically. Returns false if the file system does not support this.
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
  const std::optional<LeftoverName> leftover = leftover_name(folder_name);
  return leftover && leftover->replaced ? std::optional(leftover->tag) : std::nullopt;
}

std::vector<fs::path> folders_in(const fs::path& parent) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const fs::file_status status = entry->symlink_status(unknown);
    // An entry of unknown type may be a folder. Opening the entry reports the error.
    const bool removed = status.type() == fs::file_type::not_found;
    if (!removed && (unknown || fs::is_directory(status))) found.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw_system_error("list", parent, error.value());
  return found;
}

std::optional<std::string> latest_tag(const fs::path& checkpoint_dir) {
  const fs::path path = checkpoint_dir / kLatestName;
  if (!path_exists(path)) return std::nullopt;
  std::string tag = read_text_file(path, kMaxLatestBytes);
  constexpr const char* kBlank = " \t\r\n";
  tag.erase(std::min(tag.find_last_not_of(kBlank) + 1, tag.size()));
  tag.erase(0, std::min(tag.find_first_not_of(kBlank), tag.size()));
  if (!is_plain_name(tag)) {
    throw Damaged(
        fmt::format("{} contains '{}', which is not a checkpoint in {}; write the name of a checkpoint folder into the "
                    "file, or select a checkpoint with --resume_from_checkpoint DIR",
                    path.string(), shortened(tag), checkpoint_dir.string()));
  }
  return tag;
}

fs::path staging_folder(const fs::path& checkpoint_dir, const std::string& tag, const std::string& writer) {
  if (writer.empty()) return with_suffix(checkpoint_dir / tag, kStagingSuffix);
  return checkpoint_dir / fmt::format("{}.{}{}", tag, short_run_id(writer), kStagingSuffix);
}

CleanUp clean_up(const fs::path& checkpoint_dir, const std::optional<std::string>& writer, FileSystem& files) {
  CleanUp result;
  for (const fs::path& folder : folders_in(checkpoint_dir)) {
    const std::string name = folder.filename().string();
    const std::optional<LeftoverName> leftover = leftover_name(name);
    if (!leftover) continue;
    if (writer && !leftover->digits.empty() && leftover->digits != short_run_id(*writer)) continue;
    attempt(folder, result.left, [&] {
      if (leftover->replaced && put_back(folder, checkpoint_dir / leftover->tag, files)) return;
      remove_folder(folder, files);
      result.removed.push_back(name);
    });
  }
  return result;
}

std::vector<Leftover> begin_staging(const fs::path& checkpoint_dir, const std::string& tag, const std::string& writer,
                                    FileSystem& files) {
  if (!is_plain_name(tag)) throw_user_error("'{}' is not a valid checkpoint name; use a plain folder name", tag);
  make_folders(checkpoint_dir, files);
  std::vector<Leftover> left = clean_up(checkpoint_dir, writer, files).left;
  // clean_up() recognizes only tags of the form "<prefix>-<N>steps".
  const fs::path replaced = with_suffix(checkpoint_dir / tag, kReplacedSuffix);
  if (!step_of_tag(tag, "") && path_exists(replaced)) {
    attempt(replaced, left, [&] {
      if (!put_back(replaced, checkpoint_dir / tag, files)) remove_folder(replaced, files);
    });
  }
  const fs::path staging = staging_folder(checkpoint_dir, tag, writer);
  std::erase_if(left, [&](const Leftover& leftover) { return leftover.path == staging; });
  remove_folder(staging, files);
  make_folders(staging, files);
  return left;
}

std::vector<Leftover> publish(const fs::path& checkpoint_dir, const std::string& tag, const std::string& writer,
                              const std::function<void(const fs::path&)>& check, FileSystem& files) {
  const fs::path staging = staging_folder(checkpoint_dir, tag, writer);
  const fs::path target = checkpoint_dir / tag;
  // Swaps the folders back if another run without a lock has created a checkpoint at this path.
  const auto check_or = [&](const fs::path& folder, const std::function<void()>& undo) {
    try {
      if (check) check(folder);
    } catch (...) {
      undo();
      throw;
    }
  };
  sync_folder(staging, files);
  fs::path outdated;
  if (!path_exists(target)) {
    rename_path(staging, target, files);
  } else {
    check_or(target, [] {});
    if (exchange(staging, target, files)) {
      outdated = staging;
      check_or(outdated, [&] { exchange(staging, target, files); });
    } else {
      outdated = with_suffix(target, kReplacedSuffix);
      remove_folder(outdated, files);
      rename_path(target, outdated, files);
      check_or(outdated, [&] { rename_path(outdated, target, files); });
      rename_path(staging, target, files);
    }
  }
  sync_folder(checkpoint_dir, files);
  replace_text_file(checkpoint_dir / kLatestName, tag + "\n", files);
  // The checkpoint is complete. If the replaced checkpoint cannot be removed, the next save retries the removal.
  std::vector<Leftover> left;
  if (!outdated.empty()) attempt(outdated, left, [&] { remove_folder(outdated, files); });
  return left;
}

void discard_staging(const fs::path& checkpoint_dir, const std::string& tag, const std::string& writer,
                     FileSystem& files) noexcept {
  try {
    remove_folder(staging_folder(checkpoint_dir, tag, writer), files);
  } catch (const std::exception&) {
    // The next save retries the removal and reports errors.
    return;
  }
}

std::vector<Leftover> remove_checkpoints(const std::vector<fs::path>& folders, const std::string& writer,
                                         FileSystem& files) {
  std::vector<Leftover> left;
  std::vector<fs::path> doomed;
  for (const fs::path& folder : folders) {
    const fs::path renamed = staging_folder(folder.parent_path(), folder.filename().string(), writer);
    if (attempt(folder, left, [&] { rename_path(folder, renamed, files); })) doomed.push_back(renamed);
  }
  if (!doomed.empty()) sync_folder(doomed.front().parent_path(), files);
  for (const fs::path& folder : doomed) attempt(folder, left, [&] { remove_folder(folder, files); });
  return left;
}

std::optional<fs::path> latest_checkpoint(const fs::path& checkpoint_dir) {
  // Reads `latest` again if its target is missing because another process may have saved and pruned in between.
  for (std::optional<std::string> missing;;) {
    std::optional<std::string> tag = latest_tag(checkpoint_dir);
    if (!tag) return std::nullopt;
    fs::path folder = checkpoint_dir / *tag;
    if (is_folder(folder)) return folder;
    if (fs::path replaced = with_suffix(folder, kReplacedSuffix); is_folder(replaced)) return replaced;
    if (tag == missing) {
      throw Damaged(
          fmt::format("{} refers to {}, but folder {} does not exist; write the name of an existing "
                      "checkpoint into the file, or pass --overwrite to start over",
                      (checkpoint_dir / kLatestName).string(), *tag, folder.string()));
    }
    missing = std::move(tag);
  }
}

// Returns "use one of A, B and 3 more". `names` must not be empty.
static std::string use_one_of(std::vector<std::string> names) {
  constexpr size_t kShown = 8;
  const size_t others = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - others);
  return fmt::format("use one of {}{}", fmt::join(names, ", "), others > 0 ? fmt::format(" and {} more", others) : "");
}

// Returns the last clause of a message, which lists the available tags.
static std::string show_tags_in(const fs::path& folder) {
  std::vector<std::string> tags;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_folder(entry.path()) && looks_like_checkpoint(entry.path())) tags.push_back(entry.path().filename());
  }
  if (tags.empty()) return "the folder contains no checkpoints; check the path";
  std::sort(tags.begin(), tags.end());
  return use_one_of(std::move(tags));
}

std::vector<fs::path> runs_in(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / kLatestName, error)) runs.push_back(entry.path());
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

std::string suggest_runs(const fs::path& folder, const std::string& otherwise) {
  std::vector<std::string> runs;
  for (const fs::path& run : runs_in(folder)) runs.push_back(run.string());
  if (runs.empty()) return otherwise;
  return runs.size() == 1 ? fmt::format("did you mean {}?", runs.front()) : use_one_of(std::move(runs));
}

fs::path find_checkpoint(const fs::path& folder, const std::string& tag) {
  if (!is_folder(folder)) {
    if (path_exists(folder)) throw_user_error("{} is a file; use the folder that contains it", folder.string());
    const fs::path named = folder.has_filename() ? folder : folder.parent_path();
    const fs::path parent = named.parent_path().empty() ? fs::path(".") : named.parent_path();
    if (tag.empty() && is_folder(parent) && latest_tag(parent)) {
      throw_user_error("checkpoint '{}' does not exist in {}; {}", named.filename().string(), parent.string(),
                       show_tags_in(parent));
    }
    throw_user_error("checkpoint folder {} does not exist; check the path", folder.string());
  }
  if (!tag.empty()) {
    if (!is_plain_name(tag) || !is_folder(folder / tag)) {
      throw_user_error("checkpoint '{}' does not exist in {}; {}", tag, folder.string(), show_tags_in(folder));
    }
    return folder / tag;
  }
  if (looks_like_checkpoint(folder)) return folder;
  if (const auto latest = latest_checkpoint(folder)) return *latest;
  refuse_foreign(OpenFolder(folder));
  throw_user_error("{} has neither a 'latest' file nor a {} file; {}", folder.string(), kManifestName,
                   suggest_runs(folder, "use a folder of checkpoints, or a single checkpoint"));
}

RunRecord run_of(const fs::path& path) {
  const OpenFolder folder(path);
  if (!folder.holds(kManifestName) && looks_like_checkpoint(folder)) return {};
  return read_manifest(folder).run;
}

}  // namespace mpzero::io
