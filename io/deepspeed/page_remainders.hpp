#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/files/atomic_file.hpp"

namespace mpzero::io {

// The bytes that a process has for pages of several files that it shares with other processes: see OwnPages. They go
// into a file of the process's own, from which one process puts all of them in place: less than two pages for each
// stretch of bytes, beside what each process writes itself.
//
// That file has a section for each of the files. A section holds, one behind the other, the offset in the file and the
// number of bytes that follow (64 bits each), and these bytes.
class PageRemainders {
 public:
  // `file`: the index of one of the files. From several threads at once.
  void add(size_t file, int64_t offset, std::span<const std::byte> bytes);

  struct Section {
    size_t file = 0;
    std::string name;  // of the file that holds the section
    int64_t begin = 0;
    int64_t size = 0;
    uint64_t checksum = 0;
  };
  // Writes and syncs `folder/name`, where anything was added.
  std::vector<Section> write(const std::filesystem::path& folder, const std::string& name, FileSystem& files) const;

  // Writes what a section holds to its places in `target`. Throws Failure where it is not what was written.
  static void put_in_place(const std::filesystem::path& folder, const Section& section, File& target);

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte>> sections_;
};

}  // namespace mpzero::io
