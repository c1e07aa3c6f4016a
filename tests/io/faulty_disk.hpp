#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/files/file_system.hpp"

namespace mpzero::io::testing {

namespace fs = std::filesystem;

// Skips syncs, the only calls that take time without a visible effect.
class UnsyncedDisk : public FileSystem {
 public:
  explicit UnsyncedDisk(FileSystem& to = disk()) : to_(to) {}
  int open(const fs::path& path, int flags, int& descriptor) override {
    return to_.open(path, flags & ~O_DIRECT, descriptor);
  }
  void close(int descriptor) noexcept override { to_.close(descriptor); }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    return to_.write(descriptor, offset, bytes, written);
  }
  int reserve(int descriptor, int64_t size) override { return to_.reserve(descriptor, size); }
  int resize(int descriptor, int64_t size) override { return to_.resize(descriptor, size); }
  int sync(int) override { return 0; }
  int rename(const fs::path& from, const fs::path& to) override { return to_.rename(from, to); }
  int exchange(const fs::path& a, const fs::path& b) override { return to_.exchange(a, b); }
  int make_folder(const fs::path& folder) override { return to_.make_folder(folder); }
  int remove_file(const fs::path& path) override { return to_.remove_file(path); }
  int remove_folder(const fs::path& folder) override { return to_.remove_folder(folder); }

 private:
  FileSystem& to_;
};

// A disk with injected failures. All calls are executed on real files below `root`. In addition, FaultyDisk tracks the
// possible contents of the disk after a power failure: all synced data, and a random part of the remaining data.
//
// Calls are counted from 1. One call (and all later calls if `persists` is true) can fail with an errno, and the power
// can fail at one call. After the power failure, no call has an effect.
class FaultyDisk final : public FileSystem {
 public:
  explicit FaultyDisk(fs::path root) : root_(std::move(root)), top_(adopt(root_)) {}

  void fail_at(int call, int error, bool persists) { fail_call_ = call, fail_error_ = error, persists_ = persists; }
  void lose_power_at(int call) { power_call_ = call; }
  // Makes each write stop halfway, as system calls may do.
  void write_by_halves() { by_halves_ = true; }
  // Behaves like a network file system that cannot swap two names.
  void forbid_exchange() { can_exchange_ = false; }
  int calls() const { return calls_; }

  // Replaces the files below `root` with the disk's contents after a power failure. Seed 0: all unsynced data is lost.
  // Seed 1: all unsynced data is present. Seed 2: only the last change of each folder is present, and each file
  // contains garbage. Other seeds: each write is present, lost, torn or garbled, and each change of a folder is present
  // or lost, at random.
  void crash(uint32_t seed) {
    const std::scoped_lock lock(mutex_);
    Survival random(seed);
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root_)) fs::remove_all(entry.path(), ignored);
    write_out(root_, *top_, random);
  }

  int open(const fs::path& path, int flags, int& descriptor) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    // The model does not need direct access, and temporary folders often do not support it.
    if (const int error = disk().open(path, flags & ~O_DIRECT, descriptor)) return error;
    if ((flags & O_DIRECTORY) != 0) {
      open_folders_[descriptor] = folder_at(path);
      return 0;
    }
    // A library may have written the file, so none of its data is synced yet.
    if (!folder_at(path.parent_path())->entries.contains(path.filename())) {
      const auto inode = std::make_shared<Inode>();
      inode->pending.push_back({.bytes = content_of(path)});
      change(path.parent_path(), {path.filename(), Entry{inode, nullptr}});
    }
    open_files_[descriptor] = entry_at(path).file;
    if ((flags & O_DIRECT) != 0) direct_.insert(descriptor);
    if ((flags & O_TRUNC) != 0) open_files_[descriptor]->pending.push_back({.size = 0});
    return 0;
  }
  void close(int descriptor) noexcept override {
    const std::scoped_lock lock(mutex_);
    open_files_.erase(descriptor);
    direct_.erase(descriptor);
    open_folders_.erase(descriptor);
    disk().close(descriptor);
  }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (by_halves_) bytes = bytes.first(first_half(descriptor, bytes.size()));
    if (const int error = disk().write(descriptor, offset, bytes, written)) return error;
    open_files_.at(descriptor)
        ->pending.push_back(
            {.offset = offset, .bytes = {bytes.begin(), bytes.begin() + static_cast<int64_t>(written)}});
    return 0;
  }
  int reserve(int descriptor, int64_t size) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (const int error = disk().reserve(descriptor, size)) return error;
    open_files_.at(descriptor)->pending.push_back({.size = size, .grows_only = true});
    return 0;
  }
  int resize(int descriptor, int64_t size) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (const int error = disk().resize(descriptor, size)) return error;
    open_files_.at(descriptor)->pending.push_back({.size = size});
    return 0;
  }
  int sync(int descriptor) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (const auto folder = open_folders_.find(descriptor); folder != open_folders_.end()) {
      Folder& synced = *folder->second;
      for (const Change& change : synced.pending) note_survival(change);
      synced.durable = synced.entries;
      synced.pending.clear();
      return 0;
    }
    Inode& inode = *open_files_.at(descriptor);
    for (const Write& write : inode.pending) apply(write, inode.durable);
    inode.pending.clear();
    return 0;
  }
  int rename(const fs::path& from, const fs::path& to) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    const Entry moved = entry_at(from);
    if (const int error = disk().rename(from, to)) return error;
    if (from.parent_path() == to.parent_path()) {
      change(from.parent_path(), {from.filename(), std::nullopt, to.filename(), moved});
      return 0;
    }
    // An entry moved from one folder to another exists in at least one of them.
    const auto arrived = std::make_shared<bool>(false);
    change(to.parent_path(), {.name = to.filename(), .entry = moved, .arrived = arrived});
    change(from.parent_path(), {.name = from.filename(), .entry = std::nullopt, .only_if = arrived});
    return 0;
  }
  int exchange(const fs::path& a, const fs::path& b) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (!can_exchange_) return EINVAL;
    const Entry was_a = entry_at(a), was_b = entry_at(b);
    if (const int error = disk().exchange(a, b)) return error;
    change(a.parent_path(), {a.filename(), was_b, b.filename(), was_a});
    return 0;
  }
  int make_folder(const fs::path& folder) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (const int error = disk().make_folder(folder)) return error;
    change(folder.parent_path(), {folder.filename(), Entry{nullptr, std::make_shared<Folder>()}});
    return 0;
  }
  int remove_file(const fs::path& path) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (const int error = disk().remove_file(path)) return error;
    change(path.parent_path(), {path.filename(), std::nullopt});
    return 0;
  }
  int remove_folder(const fs::path& empty_folder) override {
    const std::scoped_lock lock(mutex_);
    if (const int error = next_call()) return error;
    if (const int error = disk().remove_folder(empty_folder)) return error;
    change(empty_folder.parent_path(), {empty_folder.filename(), std::nullopt});
    return 0;
  }

 private:
  using Bytes = std::vector<std::byte>;
  // A write or, if `size` is set, a change of the length.
  struct Write {
    int64_t offset = 0;
    Bytes bytes{};
    std::optional<int64_t> size{};
    bool grows_only = false;
  };
  struct Inode {
    Bytes durable;
    std::vector<Write> pending;
  };
  struct Folder;
  // Exactly one of the two members is set.
  struct Entry {
    std::shared_ptr<Inode> file;
    std::shared_ptr<Folder> folder;
  };
  using Entries = std::map<std::string, Entry>;
  // The atomic effect of one call on one or two names in a folder. A null entry removes the name.
  struct Change {
    std::string name;
    std::optional<Entry> entry;
    std::string other_name{};
    std::optional<Entry> other{};
    std::shared_ptr<bool> arrived{};  // set if the change has survived
    std::shared_ptr<bool> only_if{};  // the change survives only if the change that sets this flag survives
  };
  struct Folder {
    Entries entries;  // entries as seen by programs
    Entries durable;
    std::vector<Change> pending;
  };

  // Decides which unsynced data survives.
  struct Survival {
    explicit Survival(uint32_t seed) : seed(seed), random(seed) {}
    uint32_t operator()() { return static_cast<uint32_t>(random()); }
    uint32_t seed;
    std::mt19937 random;
  };

  // Returns the errno with which this call fails; 0 if the call succeeds.
  int next_call() {
    ++calls_;
    if (power_call_ > 0 && calls_ >= power_call_) return EIO;
    if (fail_call_ > 0 && (calls_ == fail_call_ || (persists_ && calls_ > fail_call_))) return fail_error_;
    return 0;
  }

  // Direct writes consist of one or more full pages.
  size_t first_half(int descriptor, size_t bytes) const {
    constexpr size_t kPage = 4096;
    if (!direct_.contains(descriptor)) return bytes > 1 ? bytes / 2 : bytes;
    return std::max(bytes / 2 / kPage * kPage, std::min(kPage, bytes));
  }

  static void apply(const Write& write, Bytes& content) {
    if (write.size) {
      const auto size = static_cast<size_t>(*write.size);
      if (!write.grows_only || size > content.size()) content.resize(size);
      return;
    }
    const auto begin = static_cast<size_t>(write.offset);
    content.resize(std::max(content.size(), begin + write.bytes.size()));
    std::copy(write.bytes.begin(), write.bytes.end(), content.begin() + write.offset);
  }
  static void apply(const Change& change, Entries& entries) {
    const auto set = [&](const std::string& name, const std::optional<Entry>& entry) {
      if (name.empty()) return;
      if (entry) {
        entries[name] = *entry;
      } else {
        entries.erase(name);
      }
    };
    set(change.name, change.entry);
    set(change.other_name, change.other);
  }

  static Bytes content_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  // Treats the existing content of `path` as synced.
  static std::shared_ptr<Folder> adopt(const fs::path& path) {
    auto folder = std::make_shared<Folder>();
    for (const auto& item : fs::directory_iterator(path)) {
      Entry& entry = folder->entries[item.path().filename()];
      if (item.is_directory()) {
        entry.folder = adopt(item.path());
        continue;
      }
      entry.file = std::make_shared<Inode>();
      entry.file->durable = content_of(item.path());
    }
    folder->durable = folder->entries;
    return folder;
  }

  std::shared_ptr<Folder> folder_at(const fs::path& path) const {
    std::shared_ptr<Folder> folder = top_;
    for (const fs::path& name : path.lexically_relative(root_)) {
      if (name != ".") folder = folder->entries.at(name).folder;
    }
    return folder;
  }
  Entry entry_at(const fs::path& path) const { return folder_at(path.parent_path())->entries.at(path.filename()); }
  void change(const fs::path& parent, Change change) {
    Folder& folder = *folder_at(parent);
    apply(change, folder.entries);
    folder.pending.push_back(std::move(change));
  }

  static void note_survival(const Change& change) {
    if (change.arrived) *change.arrived = true;
  }
  // Must be called for a folder before its subfolders, so that the outcome for an entry that was moved up from a
  // subfolder is already known.
  static Entries surviving_entries(const Folder& folder, Survival& random) {
    Entries entries = folder.durable;
    const auto keep = [&](const Change& change) {
      if (change.only_if && !*change.only_if) return;
      apply(change, entries);
      note_survival(change);
    };
    if (random.seed == 0 || folder.pending.empty()) return entries;
    if (random.seed == 1) {
      for (const Change& change : folder.pending) keep(change);
      return entries;
    }
    if (random.seed == 2) {
      keep(folder.pending.back());
      return entries;
    }
    // With probability 1/2, a prefix survives, as with a journal; otherwise, an arbitrary subset.
    const bool in_order = random() % 2 == 0;
    size_t kept = random() % (folder.pending.size() + 1);
    for (const Change& change : folder.pending) {
      const bool survives = in_order ? kept-- > 0 : random() % 2 == 0;
      if (in_order && !survives) break;
      if (survives) keep(change);
    }
    return entries;
  }

  static Bytes surviving_bytes(const Inode& inode, Survival& random) {
    Bytes content = inode.durable;
    if (random.seed == 0) return content;
    for (const Write& write : inode.pending) {
      switch (random.seed == 1 ? 0 : random.seed == 2 ? 3 : random() % 4) {
        case 0:
          apply(write, content);
          break;
        case 1:
          break;
        case 2: {  // torn
          Write part = write;
          if (!part.size) part.bytes.resize(part.bytes.empty() ? 0 : random() % part.bytes.size());
          apply(part, content);
          break;
        }
        default: {  // garbled
          Write garbage = write;
          for (std::byte& byte : garbage.bytes) byte = static_cast<std::byte>(random());
          apply(garbage, content);
        }
      }
    }
    return content;
  }

  static void write_out(const fs::path& path, const Folder& folder, Survival& random) {
    for (const auto& [name, entry] : surviving_entries(folder, random)) {
      if (entry.folder) {
        fs::create_directory(path / name);
        write_out(path / name, *entry.folder, random);
        continue;
      }
      const Bytes content = surviving_bytes(*entry.file, random);
      std::ofstream out(path / name, std::ios::binary);
      out.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    }
  }

  fs::path root_;
  std::shared_ptr<Folder> top_;
  std::mutex mutex_;
  int calls_ = 0;
  int fail_call_ = 0;
  int fail_error_ = 0;
  bool persists_ = false;
  int power_call_ = 0;
  bool by_halves_ = false;
  bool can_exchange_ = true;
  std::map<int, std::shared_ptr<Inode>> open_files_;
  std::map<int, std::shared_ptr<Folder>> open_folders_;
  std::set<int> direct_;
};

}  // namespace mpzero::io::testing
