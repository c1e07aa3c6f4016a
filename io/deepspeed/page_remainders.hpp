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

// The bytes of a process for pages of several files that it shares with other processes: see OwnPages. They go into the
// process's own file, from which one process copies all of them into place. Their size is less than two pages for each
// range of bytes, in addition to what each process writes itself.
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

  // Copies the bytes of a section to their places in `target`. Throws Failure if the section is not what was written.
  static void put_in_place(const std::filesystem::path& folder, const Section& section, File& target);

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte>> sections_;
};

}  // namespace mpzero::io
