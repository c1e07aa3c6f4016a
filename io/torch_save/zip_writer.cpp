#include "io/torch_save/zip_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/bytes/checksum.hpp"
#include "io/torch_save/zip_format.hpp"

namespace mpzero::io {
namespace {

// Alignment of storages in torch, for memory mapping.
constexpr int64_t kAlignment = 64;

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool needs_64_bits(int64_t value) { return value >= static_cast<int64_t>(zip::kIn64); }

uint32_t in_32_bits(int64_t value) { return needs_64_bits(value) ? zip::kIn64 : static_cast<uint32_t>(value); }

// Returns the ZIP64 field with all `values` of more than 32 bits, or an empty field.
std::string zip64_field(std::span<const int64_t> values) {
  std::string content;
  for (const int64_t value : values) {
    if (needs_64_bits(value)) append(content, static_cast<uint64_t>(value));
  }
  std::string field;
  if (content.empty()) return field;
  append(field, zip::FieldHeader{zip::kZip64Field, static_cast<uint16_t>(content.size())});
  return field + content;
}

// Returns the extra fields of the local header: large sizes, and padding to align the record.
std::string local_extra(int64_t header_offset, size_t name_bytes, int64_t bytes) {
  std::string extra = zip64_field(std::array{bytes, bytes});
  const int64_t unpadded = header_offset + static_cast<int64_t>(sizeof(zip::LocalHeader) + name_bytes + extra.size() +
                                                                sizeof(zip::FieldHeader));
  const int64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  append(extra, zip::FieldHeader{zip::kPaddingField, static_cast<uint16_t>(padding)});
  extra.append(static_cast<size_t>(padding), 'Z');
  return extra;
}

}  // namespace

TorchZipLayout::TorchZipLayout(const std::string& archive, std::string pickle, std::span<const int64_t> storage_bytes)
    : num_storages_(storage_bytes.size()) {
  const int64_t pickle_bytes = static_cast<int64_t>(pickle.size());
  add(archive + "/data.pkl", std::move(pickle), pickle_bytes);
  add(archive + "/byteorder", "little", 6);
  first_storage_ = records_.size();
  for (size_t i = 0; i < storage_bytes.size(); ++i) add(fmt::format("{}/data/{}", archive, i), "", storage_bytes[i]);
  add(archive + "/version", "3\n", 2);

  directory_offset_ = records_.back().offset + records_.back().bytes;
  for (const Record& record : records_) {
    const std::array large = {record.bytes, record.bytes, record.header_offset};
    directory_bytes_ +=
        static_cast<int64_t>(sizeof(zip::CentralHeader) + record.name.size() + zip64_field(large).size());
  }
  file_bytes_ = directory_offset_ + directory_bytes_ +
                static_cast<int64_t>(sizeof(zip::End64Record) + sizeof(zip::End64Locator) + sizeof(zip::EndRecord));
}

void TorchZipLayout::add(std::string name, std::string content, int64_t bytes) {
  Record record{.name = std::move(name), .content = std::move(content), .bytes = bytes};
  if (!records_.empty()) record.header_offset = records_.back().offset + records_.back().bytes;
  record.offset =
      record.header_offset + static_cast<int64_t>(sizeof(zip::LocalHeader) + record.name.size() +
                                                  local_extra(record.header_offset, record.name.size(), bytes).size());
  records_.push_back(std::move(record));
}

uint64_t TorchZipLayout::write_rest(File& file, std::span<const uint32_t> checksums) const {
  std::string end;
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const bool is_storage = i >= first_storage_ && i < first_storage_ + num_storages_;
    const uint32_t crc =
        is_storage ? checksums[i - first_storage_] : crc32_of(std::as_bytes(std::span(record.content)));
    zip::LocalHeader local;
    local.crc32 = crc;
    local.size = local.compressed_size = in_32_bits(record.bytes);
    local.name_bytes = static_cast<uint16_t>(record.name.size());
    const std::string extra = local_extra(record.header_offset, record.name.size(), record.bytes);
    local.extra_bytes = static_cast<uint16_t>(extra.size());
    std::string header;
    append(header, local);
    header += record.name + extra;
    if (!is_storage) header += record.content;
    file.write(record.header_offset, std::as_bytes(std::span(header)));

    zip::CentralHeader central;
    central.crc32 = crc;
    central.size = central.compressed_size = in_32_bits(record.bytes);
    central.header_offset = in_32_bits(record.header_offset);
    central.name_bytes = local.name_bytes;
    const std::string large = zip64_field(std::array{record.bytes, record.bytes, record.header_offset});
    central.extra_bytes = static_cast<uint16_t>(large.size());
    append(end, central);
    end += record.name + large;
  }

  zip::End64Record end64;
  end64.records = end64.records_on_disk = records_.size();
  end64.directory_bytes = static_cast<uint64_t>(directory_bytes_);
  end64.directory_offset = static_cast<uint64_t>(directory_offset_);
  append(end, end64);
  zip::End64Locator locator;
  locator.end64_offset = static_cast<uint64_t>(directory_offset_ + directory_bytes_);
  append(end, locator);
  zip::EndRecord last;
  last.records = last.records_on_disk = static_cast<uint16_t>(std::min<size_t>(records_.size(), zip::kIn64Short));
  last.directory_bytes = in_32_bits(directory_bytes_);
  last.directory_offset = in_32_bits(directory_offset_);
  append(end, last);
  file.write(directory_offset_, std::as_bytes(std::span(end)));
  return checksum(std::as_bytes(std::span(end)));
}

}  // namespace mpzero::io
