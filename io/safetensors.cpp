#include "io/safetensors.hpp"

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
#include "io/atomic_file.hpp"
#include "io/float_formats.hpp"
#include "io/safetensors_header.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr const char* kWeightsName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr JsonLimits kIndexLimits{.bytes = size_t{1} << 28};
constexpr size_t kConversionFloats = size_t{1} << 18;  // 512 KiB of 16-bit values: stays in the cache

// Tensor name to the shard that holds it.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const json index =
      parse_user_json(read_text_file(path, static_cast<int64_t>(kIndexLimits.bytes)), path.string(), kIndexLimits);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw_user_error("{} has no weight_map: copy or download it again", path.string());
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos) {
      throw_user_error("{} puts tensor {} into '{}', which is no file of its folder: copy or download it again",
                       path.string(), tensor, name);
    }
    shards.emplace(tensor, name);
  }
  return shards;
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

struct SafetensorsSource::Impl {
  struct Location {
    const File* file;
    StoredTensor tensor;
  };

  explicit Impl(fs::path path) : folder(std::move(path)) {
    std::error_code error;
    if (fs::exists(folder / kWeightsName, error)) {
      for (auto& [name, tensor] : open(kWeightsName)) tensors.emplace(name, Location{&files.back(), tensor});
      return;
    }
    if (!fs::exists(folder / kIndexName, error)) {
      throw_user_error("{} holds neither {} nor {}: give a folder with Hugging Face weights", folder.string(),
                       kWeightsName, kIndexName);
    }
    const std::map<std::string, std::string> shard_of = read_index(folder / kIndexName);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
    for (const std::string& shard : shards) {
      if (!fs::exists(folder / shard, error)) {
        throw_user_error("{} is missing, which {} names: copy or download the folder again", (folder / shard).string(),
                         kIndexName);
      }
      for (auto& [name, tensor] : open(shard)) {
        const auto listed = shard_of.find(name);
        if (listed != shard_of.end() && listed->second == shard) tensors.emplace(name, Location{&files.back(), tensor});
      }
    }
    for (const auto& [tensor, shard] : shard_of) {
      if (!tensors.contains(tensor)) {
        throw_user_error("tensor {} is not in {}, where {} says that it is: copy or download the folder again", tensor,
                         (folder / shard).string(), kIndexName);
      }
    }
  }

  std::map<std::string, StoredTensor> open(const std::string& name) {
    return read_safetensors_header(files.emplace_back(File::open_for_reading(folder / name)));
  }

  fs::path folder;
  std::deque<File> files;
  std::map<std::string, Location> tensors;
};

SafetensorsSource::SafetensorsSource(fs::path folder) : impl_(std::make_unique<Impl>(std::move(folder))) {}
SafetensorsSource::~SafetensorsSource() = default;
SafetensorsSource::SafetensorsSource(SafetensorsSource&&) noexcept = default;

bool SafetensorsSource::contains(const std::string& name) const { return impl_->tensors.contains(name); }

std::vector<ParameterSpec> SafetensorsSource::parameters() const {
  std::vector<ParameterSpec> all;
  for (const auto& [name, location] : impl_->tensors) all.push_back({name, location.tensor.shape});
  return all;
}

void SafetensorsSource::read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const {
  const auto found = impl_->tensors.find(parameter.name);
  if (found == impl_->tensors.end()) {
    throw_user_error("tensor {} is missing in {}: give weights of the same model", parameter.name,
                     impl_->folder.string());
  }
  const auto& [file, tensor] = found->second;
  const std::string path = file->path().string();
  if (tensor.shape != parameter.shape) {
    throw_user_error("tensor {} of {} has shape {}, the model needs {}: give weights of the same model", parameter.name,
                     path, text_of(tensor.shape), text_of(parameter.shape));
  }
  const int64_t unit = element_bytes(tensor.dtype);
  if (unit == 0) {
    throw_user_error("tensor {} of {} has type {}, which cannot be read: convert it to F32, BF16 or F16",
                     parameter.name, path, tensor.dtype);
  }
  if (begin < 0 || static_cast<int64_t>(out.size()) > parameter.numel() - begin) {
    throw_failure("elements [{}, {}) were asked for of tensor {}, which has {}", begin,
                  begin + static_cast<int64_t>(out.size()), parameter.name, parameter.numel());
  }
  const int64_t offset = tensor.offset + begin * unit;
  if (tensor.dtype == "F32") {
    file->read(offset, std::as_writable_bytes(out));
  } else {
    read_16bit(*file, offset, out, tensor.dtype == "BF16" ? &from_bfloat16 : &from_float16);
  }
}

}  // namespace mpzero::io
