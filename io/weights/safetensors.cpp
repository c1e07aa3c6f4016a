#include "io/weights/safetensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/parameter_stream.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kLengthBytes = 8;
constexpr JsonLimits kHeaderLimits{.bytes = 100'000'000};  // limit of the format
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kRemedy = "copy or download the file again";

[[noreturn]] void throw_bad_tensor(const File& file, const std::string& name, const std::string& what) {
  throw_user_error("tensor {} of {} {}; {}", name, file.path().string(), what, kRemedy);
}

// Bits per element of all dtypes in version 0.8 of the safetensors library.
std::optional<int64_t> element_bits(const std::string& dtype) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 22> kTypes = {
      {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
       {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
       {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
       {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.first == dtype; });
  if (found == kTypes.end()) return std::nullopt;
  return found->second;
}

// Returns true if a tensor has exactly this size in bytes. Negative extents and overflows return false.
bool takes_bytes(const std::vector<int64_t>& shape, int64_t bits_of_element, int64_t bytes) {
  constexpr int64_t kBitsOfByte = 8;
  int64_t bits = bits_of_element;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bits, extent, &bits)) return false;
  }
  return bits % kBitsOfByte == 0 && bits / kBitsOfByte == bytes;
}

StoredTensor tensor_from_json(const File& file, const std::string& name, const json& entry, int64_t data_begin) {
  StoredTensor tensor;
  int64_t begin = 0;
  int64_t end = 0;
  try {
    tensor.dtype = entry.at("dtype").get<std::string>();
    // get<int64_t>() would wrap values that exceed int64_t.
    for (const json& extent : entry.at("shape")) {
      tensor.shape.push_back(extent.is_number_unsigned() ? extent.get<int64_t>() : -1);
    }
    const json& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      throw_bad_tensor(file, name, "has invalid data_offsets, which must be two numbers");
    }
    begin = offsets[0].get<int64_t>();
    end = offsets[1].get<int64_t>();
  } catch (const json::exception&) {
    throw_bad_tensor(file, name, "lacks a dtype, shape or data_offsets in the header");
  }
  const int64_t data_bytes = file.size() - data_begin;
  if (begin < 0 || end < begin) throw_bad_tensor(file, name, fmt::format("has invalid offsets {} to {}", begin, end));
  if (end > data_bytes) {
    throw_bad_tensor(file, name,
                     fmt::format("ends at byte {} of the data, but the file has {} bytes of data: it is truncated", end,
                                 data_bytes));
  }
  const std::optional<int64_t> bits = element_bits(tensor.dtype);
  if (!bits) throw_bad_tensor(file, name, fmt::format("has dtype {}, which the format does not define", tensor.dtype));
  if (!takes_bytes(tensor.shape, *bits, end - begin)) {
    throw_bad_tensor(file, name,
                     fmt::format("has shape [{}] and dtype {}, but {} bytes", fmt::join(tensor.shape, ", "),
                                 tensor.dtype, end - begin));
  }
  tensor.offset = data_begin + begin;
  tensor.bytes = end - begin;
  return tensor;
}

using Tensors = std::map<std::string, StoredTensor>;

// Throws UserError unless each data byte belongs to exactly one tensor.
void check_cover(const File& file, const Tensors& tensors, int64_t data_begin) {
  std::vector<Tensors::const_iterator> by_offset;
  for (auto it = tensors.cbegin(); it != tensors.cend(); ++it) by_offset.push_back(it);
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a->second.offset, a->second.bytes) < std::pair(b->second.offset, b->second.bytes);
  });
  const auto throw_hole = [&](int64_t begin, int64_t end) {
    throw_user_error("bytes {} to {} of the data in {} do not belong to any tensor; {}", begin - data_begin,
                     end - data_begin, file.path().string(), kRemedy);
  };
  int64_t covered = data_begin;
  for (size_t i = 0; i < by_offset.size(); ++i) {
    const auto& [name, tensor] = *by_offset[i];
    if (tensor.offset < covered) throw_bad_tensor(file, name, "overlaps tensor " + by_offset[i - 1]->first);
    if (tensor.offset > covered) throw_hole(covered, tensor.offset);
    covered = tensor.offset + tensor.bytes;
  }
  if (covered < file.size()) throw_hole(covered, file.size());
}

void check_metadata(const File& file, const json& metadata) {
  const bool is_text = metadata.is_object() && std::all_of(metadata.begin(), metadata.end(),
                                                           [](const json& value) { return value.is_string(); });
  if (!is_text) {
    throw_user_error("{} of {} must be a JSON object with string values; {}", kMetadata, file.path().string(), kRemedy);
  }
}

}  // namespace

int64_t element_bytes(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "BF16" || dtype == "F16") return 2;
  return 0;
}

std::map<std::string, StoredTensor> read_safetensors_header(const File& file,
                                                            std::map<std::string, std::string>* metadata) {
  const std::string path = file.path().string();
  const int64_t size = file.size();
  if (size < kLengthBytes) throw_user_error("{} has {} bytes, too few for a safetensors file; {}", path, size, kRemedy);
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<uint64_t>(std::min(size - kLengthBytes, static_cast<int64_t>(kHeaderLimits.bytes)))) {
    throw_user_error(
        "{} declares a header of {} bytes, but the file has {} bytes: it is truncated or not a safetensors file; {}",
        path, length, size, kRemedy);
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const json header = parse_user_json(text, fmt::format("the header of {}", path), kHeaderLimits);
  if (!header.is_object()) throw_user_error("the header of {} is not a JSON object; {}", path, kRemedy);

  Tensors tensors;
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      check_metadata(file, entry);
      if (metadata != nullptr) *metadata = entry;
    } else {
      tensors.emplace(name, tensor_from_json(file, name, entry, data_begin));
    }
  }
  check_cover(file, tensors, data_begin);
  return tensors;
}

namespace {

// Returns the length field and the header of a file with contiguous `parameters`, padded to a multiple of 8 bytes.
std::string safetensors_header(std::span<const ParameterSpec> parameters, WeightType type,
                               const std::map<std::string, std::string>& metadata) {
  const char* dtype = type == WeightType::kFloat32 ? "F32" : "BF16";
  json header;
  header[kMetadata] = metadata;
  header[kMetadata]["format"] = "pt";
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

std::string shard_name(const std::string& stem, size_t index, size_t count) {
  return count == 1 ? stem + ".safetensors" : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, index + 1, count);
}

}  // namespace

std::vector<std::string> write_safetensors(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                           const ParameterSource& source, int64_t max_shard_bytes,
                                           const OnWritten& on_written, WeightType type, FileSystem& file_system,
                                           const std::string& stem,
                                           const std::map<std::string, std::string>& metadata) {
  const auto shards = split_into_shards(parameters, max_shard_bytes, type);
  std::vector<std::string> names;
  std::deque<File> files;
  std::vector<Destination> destinations;
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_numel = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shard_name(stem, i, shards.size()));
    File& file = files.emplace_back(File::create(folder / names.back(), file_system));
    const std::string header = safetensors_header(shards[i], type, metadata);
    file.write(0, std::as_bytes(std::span(header)));
    int64_t offset = static_cast<int64_t>(header.size());
    for (const ParameterSpec& parameter : shards[i]) {
      destinations.push_back({&parameter, &file, offset, nullptr});
      weight_map[parameter.name] = names.back();
      offset += parameter.numel() * bytes_of(type);
      total_numel += parameter.numel();
    }
    file.resize(offset);
  }
  stream_parameters(destinations, source, type, on_written);
  for (File& file : files) file.sync();
  if (shards.size() > 1) {
    const nlohmann::json index = {
        {"metadata", {{"total_parameters", total_numel}, {"total_size", total_numel * bytes_of(type)}}},
        {"weight_map", std::move(weight_map)}};
    names.push_back(stem + ".safetensors.index.json");
    write_text_file(folder / names.back(), index.dump(2) + "\n", file_system);
  }
  return names;
}

}  // namespace mpzero::io
