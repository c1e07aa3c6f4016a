#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace mpzero::io {

// The pages of a file that only one process writes, if several processes, possibly on several nodes, write one file.
//
// A client of a network file system may write back a full page although only a part of it has changed, and so overwrite
// what another client has written to that page. So a process only writes pages that belong entirely to it. Its bytes of
// other pages go through PageRemainders.
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

}  // namespace mpzero::io
