#include "io/deepspeed/own_pages.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "io/bytes/aligned_buffers.hpp"

namespace mpzero::io {

void OwnPages::add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  auto next = stretches_.lower_bound(begin);
  if (next != stretches_.end() && next->first <= end) {
    if (next->first < end) throw_failure("bytes [{}, {}) of a file are to be written twice", next->first, end);
    end = next->second;
    next = stretches_.erase(next);
  }
  if (next != stretches_.begin()) {
    const auto before = std::prev(next);
    if (before->second > begin)
      throw_failure("bytes [{}, {}) of a file are to be written twice", begin, before->second);
    if (before->second == begin) {
      before->second = end;
      return;
    }
  }
  stretches_.emplace(begin, end);
}

void OwnPages::split(int64_t begin, int64_t end,
                     const std::function<void(int64_t begin, int64_t end, Page page)>& visit) const {
  if (begin >= end) return;
  const auto after = stretches_.upper_bound(begin);
  if (after == stretches_.begin() || std::prev(after)->second < end) {
    throw_failure("bytes [{}, {}) of a file are written, but were not announced", begin, end);
  }
  const auto& [first, last] = *std::prev(after);
  const int64_t own_begin = std::clamp(round_up_to_page(first), begin, end);
  const int64_t own_end = std::clamp(round_down_to_page(last), own_begin, end);
  const auto part = [&](int64_t from, int64_t to, Page page) {
    if (from < to) visit(from, to, page);
  };
  part(begin, own_begin, Page::kShared);
  part(own_begin, own_end, Page::kOwn);
  part(own_end, end, Page::kShared);
}

}  // namespace mpzero::io
