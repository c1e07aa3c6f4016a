#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/files/damaged.hpp"
#include "io/torch_save/zip_format.hpp"
#include "io/torch_save/zip_reader.hpp"

namespace mpzero::io {
namespace {

constexpr int64_t kMaxDirectoryBytes = int64_t{64} << 20;

template <typename Header>
Header header_at(const File& file, int64_t offset) {
  Header header;
  file.read(offset, std::as_writable_bytes(std::span(&header, 1)));
  return header;
}

struct Directory {
  int64_t offset;
  int64_t bytes;
  uint64_t records;
};

// The last end record whose comment ends exactly at the end of the file.
int64_t find_end_record(const File& file, int64_t size) {
  const int64_t tail_bytes =
      std::min<int64_t>(size, static_cast<int64_t>(sizeof(zip::EndRecord)) + zip::kMaxCommentBytes);
  std::vector<std::byte> tail(static_cast<size_t>(tail_bytes));
  file.read(size - tail_bytes, tail);
  for (int64_t at = tail_bytes - static_cast<int64_t>(sizeof(zip::EndRecord)); at >= 0; --at) {
    zip::EndRecord end;
    std::memcpy(&end, tail.data() + at, sizeof end);
    if (end.signature != zip::kEndSignature) continue;
    if (at + static_cast<int64_t>(sizeof end) + end.comment_bytes == tail_bytes) return size - tail_bytes + at;
  }
  throw_damaged(file.path(), "it does not end as a ZIP archive does, so it is truncated or not a file of torch.save");
}

Directory find_directory(const File& file) {
  const int64_t size = file.size();
  if (size < static_cast<int64_t>(sizeof(zip::EndRecord))) {
    throw_damaged(file.path(), fmt::format("it has {} bytes, too few for a file of torch.save", size));
  }
  const int64_t end_offset = find_end_record(file, size);
  const auto end = header_at<zip::EndRecord>(file, end_offset);
  uint64_t offset = end.directory_offset;
  uint64_t bytes = end.directory_bytes;
  uint64_t records = end.records;
  const int64_t locator_offset = end_offset - static_cast<int64_t>(sizeof(zip::End64Locator));
  if (locator_offset >= 0) {
    const auto locator = header_at<zip::End64Locator>(file, locator_offset);
    if (locator.signature == zip::kEnd64LocatorSignature) {
      const auto last = static_cast<uint64_t>(locator_offset);
      if (last < sizeof(zip::End64Record) || locator.end64_offset > last - sizeof(zip::End64Record)) {
        throw_damaged(file.path(), "its ZIP64 end record is outside of it");
      }
      const auto end64 = header_at<zip::End64Record>(file, static_cast<int64_t>(locator.end64_offset));
      if (end64.signature != zip::kEnd64Signature) throw_damaged(file.path(), "its ZIP64 end record is missing");
      offset = end64.directory_offset;
      bytes = end64.directory_bytes;
      records = end64.records;
    }
  }
  const auto limit = static_cast<uint64_t>(end_offset);
  if (offset > limit || bytes > limit - offset || bytes > static_cast<uint64_t>(kMaxDirectoryBytes) ||
      records > bytes / sizeof(zip::CentralHeader)) {
    throw_damaged(file.path(), "its ZIP directory does not fit into it");
  }
  return {static_cast<int64_t>(offset), static_cast<int64_t>(bytes), records};
}

// A record as described in the directory. `offset` is still that of its local header.
struct Entry {
  ZipRecord record;
  uint64_t size = 0;
  uint64_t compressed_size = 0;
  uint64_t header_offset = 0;
};

class DirectoryParser {
 public:
  DirectoryParser(const File& file, const Directory& directory)
      : file_(file), directory_(directory), bytes_(static_cast<size_t>(directory.bytes)) {
    file.read(directory.offset, bytes_);
  }

  Entry next() {
    const auto header = take<zip::CentralHeader>();
    if (header.signature != zip::kCentralSignature) fail("its ZIP directory has an entry without a signature");
    Entry entry;
    const std::span<const std::byte> name = take_bytes(header.name_bytes);
    entry.record.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    const std::span<const std::byte> extra = take_bytes(header.extra_bytes);
    take_bytes(header.comment_bytes);
    entry.record.crc32 = header.crc32;
    entry.size = header.size;
    entry.compressed_size = header.compressed_size;
    entry.header_offset = header.header_offset;
    read_zip64(extra, entry);
    if (header.method != zip::kStored || entry.size != entry.compressed_size || (header.flags & 1U) != 0) {
      throw_incomplete("{}: {} is compressed or encrypted, which torch.save never does; {}", file_.path().string(),
                       entry.record.name, kChooseAnother);
    }
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw_damaged(file_.path(), what); }

  std::span<const std::byte> take_bytes(size_t count) {
    if (count > bytes_.size() - position_) fail("its ZIP directory ends too early");
    const auto part = std::span<const std::byte>(bytes_).subspan(position_, count);
    position_ += count;
    return part;
  }

  template <typename Header>
  Header take() {
    Header header;
    std::memcpy(&header, take_bytes(sizeof header).data(), sizeof header);
    return header;
  }

  // Values that do not fit 32 bits are in the ZIP64 field, in this order.
  void read_zip64(std::span<const std::byte> extra, Entry& entry) const {
    if (entry.size != zip::kIn64 && entry.compressed_size != zip::kIn64 && entry.header_offset != zip::kIn64) return;
    while (extra.size() >= sizeof(zip::FieldHeader)) {
      zip::FieldHeader field;
      std::memcpy(&field, extra.data(), sizeof field);
      extra = extra.subspan(sizeof field);
      if (field.bytes > extra.size()) break;
      if (field.id != zip::kZip64Field) {
        extra = extra.subspan(field.bytes);
        continue;
      }
      extra = extra.first(field.bytes);
      for (uint64_t* value : {&entry.size, &entry.compressed_size, &entry.header_offset}) {
        if (*value != zip::kIn64) continue;
        if (extra.size() < sizeof *value) fail("a ZIP64 field of its directory is too short");
        std::memcpy(value, extra.data(), sizeof *value);
        extra = extra.subspan(sizeof *value);
      }
      return;
    }
    fail("its ZIP directory lacks a ZIP64 field");
  }

  const File& file_;
  Directory directory_;
  std::vector<std::byte> bytes_;
  size_t position_ = 0;
};

// Finds the record's first byte: after its local header, which must have the same name.
void locate(const File& file, const Directory& directory, Entry& entry) {
  const auto limit = static_cast<uint64_t>(directory.offset);
  const auto fail = [&] {
    throw_damaged(file.path(), fmt::format("its ZIP directory gives a wrong position for {:.100}", entry.record.name));
  };
  if (limit < sizeof(zip::LocalHeader) || entry.header_offset > limit - sizeof(zip::LocalHeader)) fail();
  const auto header = header_at<zip::LocalHeader>(file, static_cast<int64_t>(entry.header_offset));
  if (header.signature != zip::kLocalSignature || header.name_bytes != entry.record.name.size()) fail();
  const uint64_t name_offset = entry.header_offset + sizeof(zip::LocalHeader);
  const uint64_t offset = name_offset + header.name_bytes + header.extra_bytes;
  if (offset > limit || entry.size > limit - offset) fail();
  std::string name(header.name_bytes, '\0');
  file.read(static_cast<int64_t>(name_offset), std::as_writable_bytes(std::span(name)));
  if (name != entry.record.name) fail();
  entry.record.offset = static_cast<int64_t>(offset);
  entry.record.size = static_cast<int64_t>(entry.size);
}

uint64_t checksum_from(const File& file, int64_t begin) {
  StreamingChecksum sum;
  std::vector<std::byte> buffer;
  for (const int64_t end = file.size(); begin < end; begin += static_cast<int64_t>(buffer.size())) {
    buffer.resize(static_cast<size_t>(std::min(end - begin, kChecksumBlockBytes)));
    file.read(begin, buffer);
    sum.add(buffer);
  }
  return sum.value();
}

}  // namespace

ZipDirectory read_zip_directory(const File& file) {
  const Directory directory = find_directory(file);
  DirectoryParser parser(file, directory);
  std::map<std::string, ZipRecord> records;
  std::vector<std::pair<int64_t, int64_t>> extents;
  for (uint64_t i = 0; i < directory.records; ++i) {
    Entry entry = parser.next();
    locate(file, directory, entry);
    extents.emplace_back(entry.header_offset, entry.record.offset + entry.record.size);
    const std::string name = entry.record.name;
    if (!records.emplace(name, std::move(entry.record)).second) {
      throw_damaged(file.path(), fmt::format("it holds {:.100} twice", name));
    }
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i - 1].second > extents[i].first) throw_damaged(file.path(), "two of its records overlap");
  }
  return {std::move(records), checksum_from(file, directory.offset)};
}

}  // namespace mpzero::io
