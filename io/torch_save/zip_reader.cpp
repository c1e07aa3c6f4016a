#include "io/torch_save/zip_reader.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/damaged.hpp"
#include "io/torch_save/pickle_reader.hpp"
#include "io/torch_save/zip_format.hpp"

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

// Finds the last end record with a comment that ends at the end of the file.
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
  throw_damaged(file.path(), "the file has no ZIP end record: it is truncated or not a torch.save file");
}

Directory find_directory(const File& file) {
  const int64_t size = file.size();
  if (size < static_cast<int64_t>(sizeof(zip::EndRecord))) {
    throw_damaged(file.path(), fmt::format("the file has {} bytes, too few for a torch.save file", size));
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
        throw_damaged(file.path(), "the ZIP64 end record is outside of the file");
      }
      const auto end64 = header_at<zip::End64Record>(file, static_cast<int64_t>(locator.end64_offset));
      if (end64.signature != zip::kEnd64Signature) throw_damaged(file.path(), "the ZIP64 end record is missing");
      offset = end64.directory_offset;
      bytes = end64.directory_bytes;
      records = end64.records;
    }
  }
  const auto limit = static_cast<uint64_t>(end_offset);
  if (offset > limit || bytes > limit - offset || bytes > static_cast<uint64_t>(kMaxDirectoryBytes) ||
      records > bytes / sizeof(zip::CentralHeader)) {
    throw_damaged(file.path(), "the ZIP directory extends past the end of the file");
  }
  return {static_cast<int64_t>(offset), static_cast<int64_t>(bytes), records};
}

// A directory entry. `offset` is the offset of the local header, not of the data.
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
    if (header.signature != zip::kCentralSignature) fail("the ZIP directory has an entry without a signature");
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
      throw_incomplete("{}: {} is compressed or encrypted, so the file was not written by torch.save; {}",
                       file_.path().string(), entry.record.name, kChooseAnother);
    }
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw_damaged(file_.path(), what); }

  std::span<const std::byte> take_bytes(size_t count) {
    if (count > bytes_.size() - position_) fail("the ZIP directory is truncated");
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

  // Values of more than 32 bits are in the ZIP64 field, in this order.
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
        if (extra.size() < sizeof *value) fail("a ZIP64 field of the directory is too short");
        std::memcpy(value, extra.data(), sizeof *value);
        extra = extra.subspan(sizeof *value);
      }
      return;
    }
    fail("the ZIP directory lacks a ZIP64 field");
  }

  const File& file_;
  Directory directory_;
  std::vector<std::byte> bytes_;
  size_t position_ = 0;
};

// Sets the offset of the record's data and checks the name in the local header.
void locate(const File& file, const Directory& directory, Entry& entry) {
  const auto limit = static_cast<uint64_t>(directory.offset);
  const auto fail = [&] {
    throw_damaged(file.path(), fmt::format("the ZIP directory has an invalid offset for {:.100}", entry.record.name));
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
      throw_damaged(file.path(), fmt::format("the file contains {:.100} twice", name));
    }
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i - 1].second > extents[i].first) throw_damaged(file.path(), "two of its records overlap");
  }
  return {std::move(records), checksum_from(file, directory.offset)};
}

namespace {

constexpr std::string_view kPickleName = "data.pkl";
constexpr std::string_view kByteOrderName = "byteorder";
constexpr int64_t kMaxByteOrderBytes = 16;
constexpr int64_t kBlockBytes = int64_t{1} << 20;

uint32_t crc32_of_file(const File& file, int64_t begin, int64_t end) {
  RangeChecksums checksums;
  std::vector<std::byte> block(static_cast<size_t>(std::min(kBlockBytes, end - begin)));
  for (int64_t at = begin; at < end; at += kBlockBytes) {
    const std::span<std::byte> part = std::span(block).first(static_cast<size_t>(std::min(kBlockBytes, end - at)));
    file.read(at, part);
    checksums.add(at - begin, part);
  }
  return checksums.combined(end - begin, [](int64_t, int64_t) { return 0U; });
}

std::vector<std::byte> read_verified(const File& file, const ZipRecord& record, int64_t max_bytes) {
  if (record.size > max_bytes) {
    throw_damaged(file.path(), fmt::format("record {:.100} has {} bytes, but the limit is {} bytes", record.name,
                                           record.size, max_bytes));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(record.size));
  file.read(record.offset, bytes);
  if (crc32_of(bytes) != record.crc32) {
    throw_damaged(file.path(), fmt::format("the checksum of record {:.100} does not match", record.name));
  }
  return bytes;
}

// Returns the folder name, for example "archive/" of "archive/data.pkl". The writer can choose any name.
std::string prefix_of(const File& file, const std::map<std::string, ZipRecord>& records) {
  for (const auto& [name, record] : records) {
    if (!name.ends_with(kPickleName)) continue;
    const std::string prefix = name.substr(0, name.size() - kPickleName.size());
    if (std::count(prefix.begin(), prefix.end(), '/') == (prefix.empty() ? 0 : 1)) return prefix;
  }
  throw_damaged(file.path(), "the file contains no data.pkl, so it was not written by torch.save");
}

}  // namespace

// Brace initialization reads the directory before it moves `file`.
TorchZipReader::TorchZipReader(File file) : TorchZipReader{read_zip_directory(file), std::move(file)} {}

TorchZipReader::TorchZipReader(ZipDirectory directory, File file)
    : file_(std::move(file)),
      directory_checksum_(directory.checksum),
      records_(std::move(directory.records)),
      prefix_(prefix_of(file_, records_)) {
  if (const auto order = records_.find(prefix_ + std::string(kByteOrderName)); order != records_.end()) {
    const std::vector<std::byte> text = read_verified(file_, order->second, kMaxByteOrderBytes);
    if (std::string(reinterpret_cast<const char*>(text.data()), text.size()) != "little") {
      throw_user_error(
          "{} was written on a machine with a different byte order; save the file again on an x86 or Arm machine",
          path().string());
    }
  }
  const ZipRecord& record = records_.at(prefix_ + std::string(kPickleName));
  document_ = pickle::read(read_verified(file_, record, pickle::kMaxPickleBytes), path().string());
}

const ZipRecord& TorchZipReader::storage_of(const pickle::Tensor& tensor) const {
  const auto found = records_.find(prefix_ + "data/" + tensor.storage);
  if (found == records_.end()) {
    throw_damaged(path(), fmt::format("the file lacks storage {:.100}, which a tensor uses", tensor.storage));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(tensor.storage_numel, pickle::bytes_of(tensor.type), &bytes) ||
      bytes != found->second.size) {
    throw_damaged(path(), fmt::format("storage {:.100} has {} bytes, but the pickle records {} elements",
                                      tensor.storage, found->second.size, tensor.storage_numel));
  }
  return found->second;
}

void TorchZipReader::read(const pickle::Tensor& tensor, int64_t begin, std::span<float> out) {
  const ZipRecord& record = storage_of(tensor);
  if (begin < 0 || static_cast<int64_t>(out.size()) > tensor.numel - begin) {
    throw_failure("elements {} to {} were requested from a tensor of {} elements in {}", begin,
                  begin + static_cast<int64_t>(out.size()), tensor.numel, path().string());
  }
  const int64_t first = (tensor.offset + begin) * pickle::bytes_of(tensor.type);
  RangeChecksums checksums;
  const auto read = [&](int64_t position, std::span<std::byte> bytes) {
    file_.read(record.offset + first + position, bytes);
    checksums.add(first + position, bytes);
  };
  switch (tensor.type) {
    case pickle::ScalarType::kFloat32:
      read(0, std::as_writable_bytes(out));
      break;
    case pickle::ScalarType::kBFloat16:
      read_16bit(out, &from_bfloat16, read);
      break;
    case pickle::ScalarType::kFloat16:
      read_16bit(out, &from_float16, read);
      break;
  }
  const std::scoped_lock lock(mutex_);
  read_[tensor.storage].add(checksums);
}

std::vector<std::string> TorchZipReader::checksums_of_what_was_read() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [key, checksums] : read_) lines.push_back(key + " " + checksums.to_text());
  return lines;
}

void TorchZipReader::verify(std::span<const std::string> lines) const {
  std::map<std::string, RangeChecksums> read;
  for (const std::string& line : lines) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) throw std::invalid_argument("no key before the ranges");
    read[line.substr(0, space)].add_text(std::string_view(line).substr(space + 1));
  }
  for (const auto& [key, checksums] : read) {
    const ZipRecord& record = records_.at(prefix_ + "data/" + key);
    const uint32_t found = checksums.combined(record.size, [&](int64_t begin, int64_t end) {
      return crc32_of_file(file_, record.offset + begin, record.offset + end);
    });
    if (found != record.crc32) {
      throw_damaged(path(), fmt::format("the checksum of storage {:.100} does not match", key));
    }
  }
}

void TorchZipReader::verify() const {
  for (const auto& [name, record] : records_) {
    if (crc32_of_file(file_, record.offset, record.offset + record.size) != record.crc32) {
      throw_damaged(path(), fmt::format("the checksum of record {:.100} does not match", name));
    }
  }
}

}  // namespace mpzero::io
