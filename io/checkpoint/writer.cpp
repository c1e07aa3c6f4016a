#include "io/checkpoint/writer.hpp"

#include <utility>

#include "io/checkpoint/shard_files.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;

std::string Hdf5Writer::write_shards(const fs::path& folder, int rank, const ShardValues& values,
                                     const WriteOptions& options) const {
  const ManifestFile file =
      write_optimizer_file(folder, optimizer_file_name(progress_.dtype, rank), shards_, values, options);
  return file.name.empty() ? "" : to_text(file);
}

std::vector<ManifestFile> Hdf5Writer::finish(const fs::path& folder, std::span<const std::string> written,
                                             FileSystem& files) const {
  const ModelStates states{progress_, units_of(shards_)};
  Manifest manifest;
  manifest.files.push_back(write_model_states(folder, states, files));
  for (const std::string& text : written) {
    if (!text.empty()) manifest.files.push_back(manifest_file_from_text(text));
  }
  check_complete(manifest, states.units);
  return std::move(manifest.files);
}

}  // namespace mpzero::io
