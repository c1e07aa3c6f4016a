#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/parameter_stream.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_header.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

int64_t bytes_of(const ParameterSpec& parameter) { return parameter.numel() * static_cast<int64_t>(sizeof(float)); }

// Neighbours share a shard as long as they fit.
std::vector<std::span<const ParameterSpec>> split(std::span<const ParameterSpec> parameters, int64_t max_shard_bytes) {
  std::vector<std::span<const ParameterSpec>> shards;
  size_t begin = 0;
  int64_t size = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i > begin && size + bytes_of(parameters[i]) > max_shard_bytes) {
      shards.push_back(parameters.subspan(begin, i - begin));
      begin = i;
      size = 0;
    }
    size += bytes_of(parameters[i]);
  }
  shards.push_back(parameters.subspan(begin));
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

}  // namespace

std::vector<std::string> write_safetensors(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                           const ParameterSource& source, int64_t max_shard_bytes,
                                           const OnWritten& on_written) {
  const auto shards = split(parameters, max_shard_bytes);
  std::vector<std::string> names;
  std::deque<File> files;
  std::vector<Destination> destinations;
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_numel = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shard_name(i, shards.size()));
    File& file = files.emplace_back(File::create(folder / names.back()));
    const std::string header = safetensors_header(shards[i]);
    file.write(0, std::as_bytes(std::span(header)));
    int64_t offset = static_cast<int64_t>(header.size());
    for (const ParameterSpec& parameter : shards[i]) {
      destinations.push_back({&parameter, &file, offset});
      weight_map[parameter.name] = names.back();
      offset += bytes_of(parameter);
      total_numel += parameter.numel();
    }
    file.resize(offset);
  }
  stream_parameters(destinations, source, on_written);
  for (File& file : files) file.sync();
  if (shards.size() > 1) {
    const nlohmann::json index = {
        {"metadata",
         {{"total_parameters", total_numel}, {"total_size", total_numel * static_cast<int64_t>(sizeof(float))}}},
        {"weight_map", std::move(weight_map)}};
    names.emplace_back("model.safetensors.index.json");
    write_text_file(folder / names.back(), index.dump(2) + "\n");
  }
  return names;
}

}  // namespace mpzero::io
