#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "io/files/file_system.hpp"

namespace mpzero::io::testing {

namespace fs = std::filesystem;

// A client of a network file system. The client caches the pages that it writes, and writes back full pages when the
// file is synced or closed, or earlier. The bytes of a page that the client did not write are then overwritten with
// their values from when the client read the page. Each rank has its own client, as if ranks were on different nodes.
//
// In its first sync of a file, a client waits for the first syncs of all other ranks, so that all clients have read the
// shared pages before any client writes one back.
class PagedClient final : public FileSystem {
 public:
  explicit PagedClient(std::barrier<>& all_have_written) : all_have_written_(all_have_written) {}

  // Returns the files that were opened for both reading and writing although other ranks may also write to them.
  std::set<std::string> opened_for_reading() const { return opened_for_reading_; }

  int open(const fs::path& path, int flags, int& descriptor) override {
    if (const int error = disk().open(path, flags & ~O_DIRECT, descriptor)) return error;
    if ((flags & O_DIRECTORY) != 0 || (flags & O_ACCMODE) == O_RDONLY) return 0;
    const std::scoped_lock lock(mutex_);
    if ((flags & O_ACCMODE) == O_RDWR) opened_for_reading_.insert(path.filename());
    OpenFile& file = open_[descriptor];
    file.server = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    return 0;
  }
  void close(int descriptor) noexcept override {
    const std::scoped_lock lock(mutex_);
    if (const auto found = open_.find(descriptor); found != open_.end()) {
      write_back(found->second);
      ::close(found->second.server);
      open_.erase(found);
    }
    disk().close(descriptor);
  }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    const std::scoped_lock lock(mutex_);
    OpenFile& file = open_.at(descriptor);
    grow(file, offset + static_cast<int64_t>(bytes.size()));
    for (size_t done = 0; done < bytes.size();) {
      const int64_t at = offset + static_cast<int64_t>(done);
      const int64_t in_page = at % kPage;
      const size_t count = std::min(bytes.size() - done, static_cast<size_t>(kPage - in_page));
      std::copy_n(bytes.begin() + static_cast<int64_t>(done), count, page(file, at / kPage).begin() + in_page);
      done += count;
    }
    written = bytes.size();
    return 0;
  }
  int sync(int descriptor) override {
    std::unique_lock lock(mutex_);
    if (!open_.contains(descriptor)) return 0;  // a folder
    lock.unlock();
    std::call_once(first_sync_, [&] { all_have_written_.arrive_and_wait(); });
    lock.lock();
    write_back(open_.at(descriptor));
    return 0;
  }
  int reserve(int descriptor, int64_t size) override { return disk().reserve(descriptor, size); }
  int resize(int descriptor, int64_t size) override { return disk().resize(descriptor, size); }
  int rename(const fs::path& from, const fs::path& to) override { return disk().rename(from, to); }
  int exchange(const fs::path& a, const fs::path& b) override { return disk().exchange(a, b); }
  int make_folder(const fs::path& folder) override { return disk().make_folder(folder); }
  int remove_file(const fs::path& path) override { return disk().remove_file(path); }
  int remove_folder(const fs::path& folder) override { return disk().remove_folder(folder); }

 private:
  static constexpr int64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;
  struct OpenFile {
    int server = -1;
    std::map<int64_t, Page> dirty{};
  };

  static Page& page(OpenFile& file, int64_t index) {
    const auto [found, is_new] = file.dirty.try_emplace(index, Page{});
    if (is_new && ::pread(file.server, found->second.data(), kPage, index * kPage) < 0) found->second = {};
    return found->second;
  }

  static int64_t size_of(const OpenFile& file) {
    struct stat status {};
    return ::fstat(file.server, &status) == 0 ? status.st_size : 0;
  }
  static void grow(const OpenFile& file, int64_t size) {
    if (size_of(file) < size) disk().resize(file.server, size);
  }

  static void write_back(OpenFile& file) {
    const int64_t size = size_of(file);
    for (const auto& [index, page] : file.dirty) {
      const int64_t count = std::min<int64_t>(kPage, size - index * kPage);
      size_t written = 0;
      if (count > 0) {
        disk().write(file.server, index * kPage, std::span(page).first(static_cast<size_t>(count)), written);
      }
    }
    file.dirty.clear();
  }

  std::barrier<>& all_have_written_;
  std::once_flag first_sync_;
  std::mutex mutex_;
  std::map<int, OpenFile> open_;
  std::set<std::string> opened_for_reading_;
};

}  // namespace mpzero::io::testing
