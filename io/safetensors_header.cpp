#include "io/safetensors_header.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero::io {
using nlohmann::json;
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kLengthBytes = 8;
constexpr JsonLimits kHeaderLimits{.bytes = 100'000'000};  // the format's own limit
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kRemedy = "copy or download it again";

[[noreturn]] void throw_bad_tensor(const File& file, const std::string& name, const std::string& what) {
  throw_user_error("tensor {} of {} {}: {}", name, file.path().string(), what, kRemedy);
}

// Elements of `shape`, or nothing where an extent is negative or the product times `unit` overflows.
bool byte_count(const std::vector<int64_t>& shape, int64_t unit, int64_t& bytes) {
  bytes = unit;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return false;
  }
  return true;
}

StoredTensor tensor_from_json(const File& file, const std::string& name, const json& entry, int64_t data_begin) {
  StoredTensor tensor;
  int64_t begin = 0;
  int64_t end = 0;
  try {
    tensor.dtype = entry.at("dtype").get<std::string>();
    // get<int64_t> would wrap what does not fit.
    for (const json& extent : entry.at("shape")) {
      tensor.shape.push_back(extent.is_number_unsigned() ? extent.get<int64_t>() : -1);
    }
    const json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      throw_bad_tensor(file, name, "has data_offsets that are not two numbers");
    }
    begin = offsets[0].get<int64_t>();
    end = offsets[1].get<int64_t>();
  } catch (const json::exception&) {
    throw_bad_tensor(file, name, "lacks a dtype, shape or data_offsets in the header");
  }
  const int64_t data_bytes = file.size() - data_begin;
  if (begin < 0 || end < begin)
    throw_bad_tensor(file, name, fmt::format("has impossible offsets {} to {}", begin, end));
  if (end > data_bytes) {
    throw_bad_tensor(file, name,
                     fmt::format("ends at byte {} of the data, but the file has {}: it is truncated", end, data_bytes));
  }
  const int64_t unit = element_bytes(tensor.dtype);
  int64_t expected = 0;
  if (unit > 0 && (!byte_count(tensor.shape, unit, expected) || expected != end - begin)) {
    throw_bad_tensor(file, name,
                     fmt::format("of shape [{}] and type {} takes {} bytes", fmt::join(tensor.shape, ", "),
                                 tensor.dtype, end - begin));
  }
  tensor.offset = data_begin + begin;
  tensor.bytes = end - begin;
  return tensor;
}

}  // namespace

int64_t element_bytes(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "BF16" || dtype == "F16") return 2;
  return 0;
}

std::map<std::string, StoredTensor> read_safetensors_header(const File& file) {
  const std::string path = file.path().string();
  const int64_t size = file.size();
  if (size < kLengthBytes) throw_user_error("{} has {} bytes, too few for a safetensors file: {}", path, size, kRemedy);
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<uint64_t>(std::min(size - kLengthBytes, static_cast<int64_t>(kHeaderLimits.bytes)))) {
    throw_user_error(
        "{} says that its header has {} bytes, but the file has {}: it is truncated or no safetensors file; {}", path,
        length, size, kRemedy);
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const json header = parse_user_json(text, fmt::format("the header of {}", path), kHeaderLimits);
  if (!header.is_object()) throw_user_error("the header of {} is not a JSON object: {}", path, kRemedy);

  std::map<std::string, StoredTensor> tensors;
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, entry] : header.items()) {
    if (name != kMetadata) tensors.emplace(name, tensor_from_json(file, name, entry, data_begin));
  }
  std::vector<std::map<std::string, StoredTensor>::const_iterator> by_offset;
  for (auto it = tensors.cbegin(); it != tensors.cend(); ++it) by_offset.push_back(it);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a->second.offset, a->second.bytes) < std::pair(b->second.offset, b->second.bytes);
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    if (by_offset[i - 1]->second.offset + by_offset[i - 1]->second.bytes > by_offset[i]->second.offset) {
      throw_bad_tensor(file, by_offset[i]->first, "overlaps tensor " + by_offset[i - 1]->first);
    }
  }
  return tensors;
}

std::string safetensors_header(std::span<const ParameterSpec> parameters, WeightType type) {
  const char* dtype = type == WeightType::kFloat32 ? "F32" : "BF16";
  json header;
  header[kMetadata] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const ParameterSpec& parameter : parameters) {
    const int64_t end = offset + parameter.numel() * bytes_of(type);
    header[parameter.name] = {{"dtype", dtype}, {"shape", parameter.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace mpzero::io
