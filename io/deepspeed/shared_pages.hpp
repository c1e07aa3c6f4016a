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

// The pages of a file that only this process writes. Several processes, possibly on different hosts, write the file
// concurrently.
//
// A client of a network file system may write back a full page even if only part of the page has changed, which
// overwrites data from another client. A process therefore writes only pages that it owns completely. Bytes on shared
// pages are written through PageRemainders.
class OwnPages {
 public:
  // Declares that this process writes bytes [begin, end) of the file. Ranges may be adjacent but must not overlap. All
  // ranges must be added before the first split().
  void add(int64_t begin, int64_t end);

  enum class Page : uint8_t { kOwn, kShared };
  // Splits [begin, end), which must be within added ranges, and calls `visit` for each part in order.
  void split(int64_t begin, int64_t end, const std::function<void(int64_t begin, int64_t end, Page page)>& visit) const;

 private:
  std::map<int64_t, int64_t> stretches_;  // begin to end; adjacent ranges are merged
};

// This process's bytes on shared pages of several files (see OwnPages). Each process writes these bytes, less than two
// pages per range, to a separate file, and rank 0 copies them to the target files.
//
// The file contains one section per target file. A section is a sequence of records. A record consists of the offset in
// the target file, the number of bytes (64 bits each), and the bytes.
class PageRemainders {
 public:
  // `file` is the index of the target file. Thread-safe.
  void add(size_t file, int64_t offset, std::span<const std::byte> bytes);

  struct Section {
    size_t file = 0;
    std::string name;  // name of the file with the section
    int64_t begin = 0;
    int64_t size = 0;
    uint64_t checksum = 0;
  };
  // Writes and syncs `folder/name` unless no bytes were added.
  std::vector<Section> write(const std::filesystem::path& folder, const std::string& name, FileSystem& files) const;

  // Copies the records of a section to `target`. Throws Failure if the section is damaged.
  static void put_in_place(const std::filesystem::path& folder, const Section& section, File& target);

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte>> sections_;
};

}  // namespace mpzero::io
