#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace mpzero::io {

// Which pages of a file are one writer's own, where several processes, perhaps on several nodes, write one file.
//
// A client of a network file system may write a whole page back though only a part of it has changed, and so undo what
// another client has written to that page. So a process writes none but pages that are all its own; its bytes of other
// pages go another way (PageRemainders).
class OwnPages {
 public:
  // Bytes [begin, end) of the file are to be written by this process. Stretches may touch, not overlap; all are added
  // before the first split().
  void add(int64_t begin, int64_t end);

  enum class Page : uint8_t { kOwn, kShared };
  // Calls `visit` for the parts of [begin, end), which lies within stretches that were added, in order.
  void split(int64_t begin, int64_t end, const std::function<void(int64_t begin, int64_t end, Page page)>& visit) const;

 private:
  std::map<int64_t, int64_t> stretches_;  // begin to end; none touches another
};

}  // namespace mpzero::io
