#include "io/checkpoint_dir/stable_read.hpp"

#include <chrono>
#include <exception>
#include <optional>
#include <system_error>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "io/checkpoint_dir/formats.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

// What makes the errors of a read meaningless. kNone if the folder is unchanged.
OpenFolder::Change change_of(const OpenFolder* folder, const fs::path& path) {
  if (folder != nullptr) return folder->change();
  std::error_code error;
  const bool found = fs::exists(path, error);
  return found || error ? OpenFolder::Change::kNone : OpenFolder::Change::kRemoved;
}

// If `removed` was found before, any error in finding it again is reported as its removal.
fs::path find_again(const std::function<fs::path()>& find, const std::optional<fs::path>& removed) {
  if (!removed) return find();
  try {
    return find();
  } catch (const UserError&) {
    throw ReplacedWhileRead(*removed, OpenFolder::Change::kRemoved);
  }
}

}  // namespace

void read_checkpoint(const std::function<fs::path()>& find, const std::function<void(const StoredCheckpoint&)>& read,
                     const std::function<void(const std::string&)>& on_restart) {
  std::optional<fs::path> removed;
  for (int attempt = 1;; ++attempt) {
    const fs::path path = find_again(find, removed);
    std::shared_ptr<const OpenFolder> folder;
    OpenFolder::Change change = OpenFolder::Change::kNone;
    try {
      folder = std::make_shared<OpenFolder>(path);
      const std::unique_ptr<StoredCheckpoint> checkpoint = open_checkpoint(folder);
      read(*checkpoint);
      return;
    } catch (const ReplacedWhileRead& replaced) {
      change = replaced.change();
    } catch (const Error&) {
      change = change_of(folder.get(), path);
      if (change == OpenFolder::Change::kNone) throw;
    }
    if (attempt == kMaxReads || (change == OpenFolder::Change::kRemoved && removed == path)) {
      throw ReplacedWhileRead(path, change);
    }
    if (change == OpenFolder::Change::kRemoved) removed = path;
    on_restart(fmt::format("{} {} by another process while it was being read; reading it again", path.string(),
                           name_of(change)));
  }
}

void open_on_all_ranks(ProcessGroup& group, const std::function<void()>& open, const Patience& patience) {
  std::chrono::milliseconds pause = patience.pause;
  for (int attempt = 1;; ++attempt) {
    std::exception_ptr error;
    bool is_damage = false;
    try {
      open();
    } catch (const Damaged&) {
      error = std::current_exception();
      is_damage = true;
    } catch (...) {
      error = std::current_exception();
    }
    const bool some_damaged = any(group, is_damage);
    const bool some_opened = any(group, !error);
    const bool may_pass = some_damaged && some_opened && attempt < patience.attempts;
    if (!may_pass) {
      return run_on_all_ranks(group, [&] {
        if (error) std::rethrow_exception(error);
      });
    }
    patience.sleep(pause);
    pause *= 2;
  }
}

bool replaced_on_any_rank(const OpenFolder* folder, ProcessGroup& group) {
  bool replaced = false;
  try {
    replaced = folder != nullptr && folder->change() != OpenFolder::Change::kNone;
  } catch (const Error&) {
    // Unknown. The error that caused this check is reported instead.
  }
  return any(group, replaced);
}

}  // namespace mpzero::io
