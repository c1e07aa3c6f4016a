#include "io/weights/safetensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/bytes/float_formats.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/safetensors_header.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr JsonLimits kIndexLimits{.bytes = size_t{1} << 28};
constexpr size_t kConversionFloats = size_t{1} << 18;  // 512 KiB of 16-bit values: stays in the cache

struct Index {
  std::map<std::string, std::string> shard_of;  // tensor name to file name
  json total_size;                              // in bytes, as in the index; null: missing
};

Index read_index(const fs::path& path) {
  const json index =
      parse_user_json(read_text_file(path, static_cast<int64_t>(kIndexLimits.bytes)), path.string(), kIndexLimits);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw_user_error("{} has no weight_map: copy or download it again", path.string());
  }
  Index read;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos) {
      throw_user_error("{} puts tensor {} into '{}', which is not a file of its folder: copy or download it again",
                       path.string(), tensor, name);
    }
    read.shard_of.emplace(tensor, name);
  }
  if (const auto metadata = index.find("metadata"); metadata != index.end() && metadata->is_object()) {
    read.total_size = metadata->value("total_size", json());
  }
  return read;
}

std::string text_of(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void read_16bit(const File& file, int64_t offset, std::span<float> out, float (*convert)(uint16_t)) {
  std::vector<uint16_t> bits(std::min(out.size(), kConversionFloats));
  for (size_t done = 0; done < out.size(); done += bits.size()) {
    bits.resize(std::min(bits.size(), out.size() - done));
    file.read(offset + static_cast<int64_t>(done * sizeof(uint16_t)), std::as_writable_bytes(std::span(bits)));
    std::transform(bits.begin(), bits.end(), out.begin() + static_cast<std::ptrdiff_t>(done), convert);
  }
}

}  // namespace

bool has_safetensors(const fs::path& folder) {
  for (const char* name : {kWeightsName, kIndexName}) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(folder / name, error);
    if (status.type() != fs::file_type::not_found) return true;
  }
  return false;
}

struct SafetensorsSource::Impl {
  struct Location {
    const File* file;
    StoredTensor tensor;
  };

  explicit Impl(fs::path path) : folder(std::move(path)) {
    std::error_code error;
    if (fs::exists(folder / kWeightsName, error)) {
      for (auto& [name, tensor] : open(kWeightsName)) tensors.emplace(name, Location{&files.back(), tensor});
      if (fs::exists(folder / kIndexName, error)) {
        warnings.push_back(fmt::format("{} is not read, because {} exists; transformers makes the same choice.",
                                       (folder / kIndexName).string(), kWeightsName));
      }
      return;
    }
    if (!fs::exists(folder / kIndexName, error)) {
      throw_user_error("{} holds neither {} nor {}: give a folder with Hugging Face weights", folder.string(),
                       kWeightsName, kIndexName);
    }
    read_shards(read_index(folder / kIndexName));
  }

  // Each tensor of the index is in its shard, and the shards hold no others.
  void read_shards(const Index& index) {
    const auto& shard_of = index.shard_of;
    std::set<std::string> shards;
    std::error_code error;
    for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
    for (const std::string& shard : shards) {
      if (!fs::exists(folder / shard, error)) {
        throw_user_error("{} is missing, which {} names: copy or download the folder again", (folder / shard).string(),
                         kIndexName);
      }
      for (auto& [name, tensor] : open(shard)) {
        const auto listed = shard_of.find(name);
        if (listed == shard_of.end() || listed->second != shard) {
          throw_user_error("tensor {} is in {}, but {} {}: copy or download the folder again", name,
                           (folder / shard).string(), kIndexName,
                           listed == shard_of.end() ? "does not name it" : "has it in " + listed->second);
        }
        tensors.emplace(name, Location{&files.back(), tensor});
      }
    }
    for (const auto& [tensor, shard] : shard_of) {
      if (!tensors.contains(tensor)) {
        throw_user_error("tensor {} is not in {}, where {} says that it is: copy or download the folder again", tensor,
                         (folder / shard).string(), kIndexName);
      }
    }
    check_total_size(index.total_size);
  }

  // Existing folders have wrong values, and nothing depends on it.
  void check_total_size(const json& total_size) {
    int64_t bytes = 0;
    for (const auto& [name, location] : tensors) bytes += location.tensor.bytes;
    if (total_size.is_null() || total_size == json(bytes)) return;
    warnings.push_back(fmt::format("{} has total_size {}, but its tensors take {} bytes.",
                                   (folder / kIndexName).string(), total_size.dump(), bytes));
  }

  const Location& find(const ParameterSpec& parameter) const;

  std::map<std::string, StoredTensor> open(const std::string& name) {
    return read_safetensors_header(files.emplace_back(File::open_for_reading(folder / name)));
  }

  fs::path folder;
  std::deque<File> files;
  std::map<std::string, Location> tensors;
  std::vector<std::string> warnings;
};

const SafetensorsSource::Impl::Location& SafetensorsSource::Impl::find(const ParameterSpec& parameter) const {
  const auto found = tensors.find(parameter.name);
  if (found == tensors.end()) {
    throw_user_error("tensor {} is missing in {}: give weights of the same model", parameter.name, folder.string());
  }
  const auto& [file, tensor] = found->second;
  const std::string path = file->path().string();
  if (tensor.shape != parameter.shape) {
    throw_user_error("tensor {} of {} has shape {}, the model needs {}: give weights of the same model", parameter.name,
                     path, text_of(tensor.shape), text_of(parameter.shape));
  }
  if (element_bytes(tensor.dtype) == 0) {
    throw_user_error("tensor {} of {} has type {}, which cannot be read: convert it to F32, BF16 or F16",
                     parameter.name, path, tensor.dtype);
  }
  return found->second;
}

SafetensorsSource::SafetensorsSource(fs::path folder) : impl_(std::make_unique<Impl>(std::move(folder))) {}
SafetensorsSource::~SafetensorsSource() = default;
SafetensorsSource::SafetensorsSource(SafetensorsSource&&) noexcept = default;

bool SafetensorsSource::contains(const std::string& name) const { return impl_->tensors.contains(name); }

std::vector<ParameterSpec> SafetensorsSource::parameters() const {
  std::vector<ParameterSpec> all;
  for (const auto& [name, location] : impl_->tensors) all.push_back({name, location.tensor.shape});
  return all;
}

std::span<const std::string> SafetensorsSource::warnings() const { return impl_->warnings; }

void SafetensorsSource::check(const ParameterSpec& parameter) const { impl_->find(parameter); }

const fs::path& SafetensorsSource::file_of(const ParameterSpec& parameter) const {
  return impl_->find(parameter).file->path();
}

void SafetensorsSource::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  const auto& [file, tensor] = impl_->find(parameter);
  if (begin < 0 || static_cast<int64_t>(out.size()) > parameter.numel() - begin) {
    throw_failure("elements [{}, {}) were requested from tensor {}, which has {}", begin,
                  begin + static_cast<int64_t>(out.size()), parameter.name, parameter.numel());
  }
  const int64_t offset = tensor.offset + begin * element_bytes(tensor.dtype);
  if (tensor.dtype == "F32") {
    file->read(offset, std::as_writable_bytes(out));
  } else {
    read_16bit(*file, offset, out, tensor.dtype == "BF16" ? &from_bfloat16 : &from_float16);
  }
}

}  // namespace mpzero::io
