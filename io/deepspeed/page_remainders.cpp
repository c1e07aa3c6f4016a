#include "io/deepspeed/page_remainders.hpp"

#include <cstring>

#include "base/error.hpp"
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
    throw_failure("{} does not hold what a rank has written: the file system lost or changed it", in.path().string());
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
