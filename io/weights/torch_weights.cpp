#include "io/weights/torch_weights.hpp"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "io/files/atomic_file.hpp"
#include "io/torch_save/pickle_writer.hpp"
#include "io/torch_save/zip_writer.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

std::string shard_stem(size_t index, size_t count) {
  return count == 1 ? "pytorch_model" : fmt::format("pytorch_model-{:05}-of-{:05}", index + 1, count);
}

// Returns the tensor names of a shard: each parameter's name, followed by its aliases.
std::vector<std::pair<std::string, size_t>> names_of(std::span<const ParameterSpec> shard,
                                                     std::span<const StoredCheckpoint::Alias> aliases) {
  std::vector<std::pair<std::string, size_t>> names;
  for (size_t i = 0; i < shard.size(); ++i) names.emplace_back(shard[i].name, i);
  for (const StoredCheckpoint::Alias& alias : aliases) {
    for (size_t i = 0; i < shard.size(); ++i) {
      if (shard[i].name == alias.parameter) names.emplace_back(alias.name, i);
    }
  }
  return names;
}

TorchZipLayout lay_out(const std::string& stem, std::span<const ParameterSpec> shard,
                       std::span<const std::pair<std::string, size_t>> names, WeightType type) {
  std::vector<pickle::Entry> tensors;
  for (const auto& [name, index] : names) {
    const ParameterSpec& parameter = shard[index];
    tensors.emplace_back(name, pickle::tensor({.storage = std::to_string(index),
                                               .type = type == WeightType::kFloat32 ? pickle::ScalarType::kFloat32
                                                                                    : pickle::ScalarType::kBFloat16,
                                               .storage_numel = parameter.numel(),
                                               .shape = parameter.shape}));
  }
  std::vector<int64_t> storages;
  for (const ParameterSpec& parameter : shard) storages.push_back(parameter.numel() * bytes_of(type));
  return TorchZipLayout(stem, pickle::dump(pickle::ordered_dict(tensors)), storages);
}

}  // namespace

std::vector<std::string> write_torch_weights(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                             std::span<const StoredCheckpoint::Alias> aliases,
                                             const ParameterSource& source, int64_t max_shard_bytes, WeightType type,
                                             const OnWritten& on_written, FileSystem& file_system) {
  struct Shard {
    std::span<const ParameterSpec> parameters;
    TorchZipLayout layout;
    File file;
    std::deque<RangeChecksums> checksums;  // one per storage
  };
  const auto split = split_into_shards(parameters, max_shard_bytes, type);
  std::deque<Shard> shards;
  std::vector<std::string> names;
  std::vector<Destination> destinations;
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_bytes = 0;
  for (size_t s = 0; s < split.size(); ++s) {
    const std::string stem = shard_stem(s, split.size());
    const auto tensors = names_of(split[s], aliases);
    names.push_back(stem + ".bin");
    for (const auto& [name, index] : tensors) weight_map[name] = names.back();
    Shard& shard = shards.emplace_back(
        Shard{split[s], lay_out(stem, split[s], tensors, type), File::create(folder / names.back(), file_system), {}});
    shard.file.resize(shard.layout.file_bytes());
    for (size_t i = 0; i < split[s].size(); ++i) {
      destinations.push_back(
          {&split[s][i], &shard.file, shard.layout.storage_offset(i), &shard.checksums.emplace_back()});
      total_bytes += shard.layout.storage_bytes(i);
    }
  }
  stream_parameters(destinations, source, type, on_written);
  for (Shard& shard : shards) {
    std::vector<uint32_t> checksums;
    for (size_t i = 0; i < shard.checksums.size(); ++i) {
      // All ranges of a parameter were written, so no data must be read back.
      checksums.push_back(
          shard.checksums[i].combined(shard.layout.storage_bytes(i), [](int64_t, int64_t) { return 0U; }));
    }
    shard.layout.write_rest(shard.file, checksums);
    shard.file.sync();
  }
  if (shards.size() > 1) {
    const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(weight_map)}};
    names.emplace_back("pytorch_model.bin.index.json");
    write_text_file(folder / names.back(), index.dump(2) + "\n", file_system);
  }
  return names;
}

}  // namespace mpzero::io
