#include <deque>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/files/atomic_file.hpp"
#include "io/weights/parameter_stream.hpp"
#include "io/weights/safetensors.hpp"
#include "io/weights/safetensors_header.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

}  // namespace

std::vector<std::string> write_safetensors(const fs::path& folder, std::span<const ParameterSpec> parameters,
                                           const ParameterSource& source, int64_t max_shard_bytes,
                                           const OnWritten& on_written, WeightType type, FileSystem& file_system) {
  const auto shards = split_into_shards(parameters, max_shard_bytes, type);
  std::vector<std::string> names;
  std::deque<File> files;
  std::vector<Destination> destinations;
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_numel = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shard_name(i, shards.size()));
    File& file = files.emplace_back(File::create(folder / names.back(), file_system));
    const std::string header = safetensors_header(shards[i], type);
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
    names.emplace_back("model.safetensors.index.json");
    write_text_file(folder / names.back(), index.dump(2) + "\n", file_system);
  }
  return names;
}

}  // namespace mpzero::io
