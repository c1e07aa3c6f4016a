#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// The pages of a file that only this process writes, while several processes, possibly on several hosts, write the
// file.
//
// A client of a network file system may write back a full page although only a part of it has changed, and so overwrite
// what another client has written to that page. So a process only writes pages that belong entirely to it. Its bytes on
// shared pages go through PageRemainders.
class OwnPages {
 public:
  // Announces that this process writes bytes [begin, end) of the file. Ranges may touch, but not overlap. All must be
  // added before the first split().
  void add(int64_t begin, int64_t end);

  enum class Page : uint8_t { kOwn, kShared };
  // Calls `visit` for the parts of [begin, end), which must be within added ranges, in order.
  void split(int64_t begin, int64_t end, const std::function<void(int64_t begin, int64_t end, Page page)>& visit) const;

 private:
  std::map<int64_t, int64_t> stretches_;  // begin to end; adjacent ranges are merged
};

// A process's bytes on pages that it shares with other processes, for several files: see OwnPages. They go to the
// process's own file, from which one process copies them into place. Their size is less than two pages for each range
// of bytes.
//
// The file has a section for each of the target files. A section is a sequence of records: the offset in the target
// file, the number of bytes that follow (64 bits each), and these bytes.
class PageRemainders {
 public:
  // `file`: the index of one of the files. Thread-safe.
  void add(size_t file, int64_t offset, std::span<const std::byte> bytes);

  struct Section {
    size_t file = 0;
    std::string name;  // of the file that holds the section
    int64_t begin = 0;
    int64_t size = 0;
    uint64_t checksum = 0;
  };
  // Writes and syncs `folder/name`, if anything was added.
  std::vector<Section> write(const std::filesystem::path& folder, const std::string& name, FileSystem& files) const;

  // Copies the bytes of a section to their places in `target`. Throws Failure if the section is damaged.
  static void put_in_place(const std::filesystem::path& folder, const Section& section, File& target);

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte>> sections_;
};

}  // namespace mpzero::io
