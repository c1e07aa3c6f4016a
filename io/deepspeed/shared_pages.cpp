#include "io/deepspeed/shared_pages.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.hpp"
#include "io/bytes/aligned_buffers.hpp"
#include "io/bytes/checksum.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

struct Header {
  int64_t offset = 0;
  int64_t bytes = 0;
};
static_assert(sizeof(Header) == 16);

}  // namespace

void OwnPages::add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  auto next = stretches_.lower_bound(begin);
  if (next != stretches_.end() && next->first <= end) {
    if (next->first < end) throw_failure("bytes {} to {} of a file would be written twice", next->first, end);
    end = next->second;
    next = stretches_.erase(next);
  }
  if (next != stretches_.begin()) {
    const auto before = std::prev(next);
    if (before->second > begin) throw_failure("bytes {} to {} of a file would be written twice", begin, before->second);
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
    throw_failure("bytes {} to {} of a file were written without a prior call to OwnPages::add()", begin, end);
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

void PageRemainders::add(size_t file, int64_t offset, std::span<const std::byte> bytes) {
  const Header header{offset, static_cast<int64_t>(bytes.size())};
  const auto header_bytes = std::as_bytes(std::span(&header, 1));
  const std::scoped_lock lock(mutex_);
  std::vector<std::byte>& section = sections_[file];
  section.insert(section.end(), header_bytes.begin(), header_bytes.end());
  section.insert(section.end(), bytes.begin(), bytes.end());
}

std::vector<PageRemainders::Section> PageRemainders::write(const fs::path& folder, const std::string& name,
                                                           FileSystem& files) const {
  if (sections_.empty()) return {};
  File out = File::create(folder / name, files);
  std::vector<Section> written;
  int64_t begin = 0;
  for (const auto& [file, bytes] : sections_) {
    out.write(begin, bytes);
    written.push_back({file, name, begin, static_cast<int64_t>(bytes.size()), checksum(bytes)});
    begin += written.back().size;
  }
  out.sync();
  return written;
}

void PageRemainders::put_in_place(const fs::path& folder, const Section& section, File& target) {
  const File in = File::open_for_reading(folder / section.name);
  std::vector<std::byte> bytes(static_cast<size_t>(section.size));
  if (in.size() >= section.begin + section.size) in.read(section.begin, bytes);
  if (checksum(bytes) != section.checksum) {
    throw_failure("{} lacks data that a rank wrote: the file system lost or corrupted the data", in.path().string());
  }
  for (std::span<const std::byte> rest(bytes); !rest.empty();) {
    Header header;
    std::memcpy(&header, rest.data(), sizeof header);
    rest = rest.subspan(sizeof header);
    target.write(header.offset, rest.first(static_cast<size_t>(header.bytes)));
    rest = rest.subspan(static_cast<size_t>(header.bytes));
  }
}

}  // namespace mpzero::io
