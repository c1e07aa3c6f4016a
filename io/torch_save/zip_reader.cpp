#include "io/torch_save/zip_reader.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "base/error.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/damaged.hpp"
#include "io/torch_save/pickle_reader.hpp"

namespace mpzero::io {
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
    throw_damaged(file.path(), fmt::format("its {:.100} has {} bytes, more than the {} that it can have", record.name,
                                           record.size, max_bytes));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(record.size));
  file.read(record.offset, bytes);
  if (crc32_of(bytes) != record.crc32) {
    throw_damaged(file.path(), fmt::format("the checksum of its {:.100} does not match", record.name));
  }
  return bytes;
}

// "archive/" of "archive/data.pkl". The writer chooses the folder's name.
std::string prefix_of(const File& file, const std::map<std::string, ZipRecord>& records) {
  for (const auto& [name, record] : records) {
    if (!name.ends_with(kPickleName)) continue;
    const std::string prefix = name.substr(0, name.size() - kPickleName.size());
    if (std::count(prefix.begin(), prefix.end(), '/') == (prefix.empty() ? 0 : 1)) return prefix;
  }
  throw_damaged(file.path(), "it holds no data.pkl, so it is not a file of torch.save");
}

void widen(const File& file, int64_t offset, std::span<float> out, float (*convert)(uint16_t), RangeChecksums& read,
           int64_t position) {
  constexpr size_t kValues = size_t{1} << 18;
  std::vector<uint16_t> bits(std::min(out.size(), kValues));
  for (size_t done = 0; done < out.size(); done += bits.size()) {
    bits.resize(std::min(bits.size(), out.size() - done));
    const auto bytes = static_cast<int64_t>(done * sizeof(uint16_t));
    file.read(offset + bytes, std::as_writable_bytes(std::span(bits)));
    read.add(position + bytes, std::as_bytes(std::span(bits)));
    std::transform(bits.begin(), bits.end(), out.begin() + static_cast<std::ptrdiff_t>(done), convert);
  }
}

}  // namespace

// Braces guarantee that the first argument is evaluated first.
TorchZipReader::TorchZipReader(File file) : TorchZipReader{read_zip_directory(file), std::move(file)} {}

TorchZipReader::TorchZipReader(ZipDirectory directory, File file)
    : file_(std::move(file)),
      directory_checksum_(directory.checksum),
      records_(std::move(directory.records)),
      prefix_(prefix_of(file_, records_)) {
  if (const auto order = records_.find(prefix_ + std::string(kByteOrderName)); order != records_.end()) {
    const std::vector<std::byte> text = read_verified(file_, order->second, kMaxByteOrderBytes);
    if (std::string(reinterpret_cast<const char*>(text.data()), text.size()) != "little") {
      throw_user_error("{} was written on a machine with another byte order: save it again on an x86 or Arm machine",
                       path().string());
    }
  }
  const ZipRecord& record = records_.at(prefix_ + std::string(kPickleName));
  document_ = pickle::read(read_verified(file_, record, pickle::kMaxPickleBytes), path().string());
}

const ZipRecord& TorchZipReader::storage_of(const pickle::Tensor& tensor) const {
  const auto found = records_.find(prefix_ + "data/" + tensor.storage);
  if (found == records_.end()) {
    throw_damaged(path(), fmt::format("it lacks storage {:.100}, which a tensor refers to", tensor.storage));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(tensor.storage_numel, pickle::bytes_of(tensor.type), &bytes) ||
      bytes != found->second.size) {
    throw_damaged(path(), fmt::format("its storage {:.100} has {} bytes, but {} elements were saved", tensor.storage,
                                      found->second.size, tensor.storage_numel));
  }
  return found->second;
}

void TorchZipReader::read(const pickle::Tensor& tensor, int64_t begin, std::span<float> out) {
  const ZipRecord& record = storage_of(tensor);
  if (begin < 0 || static_cast<int64_t>(out.size()) > tensor.numel - begin) {
    throw_failure("elements [{}, {}) were requested from a tensor of {} in {}", begin,
                  begin + static_cast<int64_t>(out.size()), tensor.numel, path().string());
  }
  const int64_t position = (tensor.offset + begin) * pickle::bytes_of(tensor.type);
  const int64_t offset = record.offset + position;
  RangeChecksums checksums;
  switch (tensor.type) {
    case pickle::ScalarType::kFloat32:
      file_.read(offset, std::as_writable_bytes(out));
      checksums.add(position, std::as_bytes(out));
      break;
    case pickle::ScalarType::kBFloat16:
      widen(file_, offset, out, &from_bfloat16, checksums, position);
      break;
    case pickle::ScalarType::kFloat16:
      widen(file_, offset, out, &from_float16, checksums, position);
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
      throw_damaged(path(), fmt::format("the checksum of its storage {:.100} does not match", key));
    }
  }
}

void TorchZipReader::verify() const {
  for (const auto& [name, record] : records_) {
    if (crc32_of_file(file_, record.offset, record.offset + record.size) != record.crc32) {
      throw_damaged(path(), fmt::format("the checksum of its {:.100} does not match", name));
    }
  }
}

}  // namespace mpzero::io
