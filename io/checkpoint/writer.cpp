#include "io/checkpoint/writer.hpp"

#include <sstream>
#include <utility>

#include "io/checkpoint/shard_files.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;

std::string Hdf5Writer::write_shards(const fs::path& folder, int rank, const ShardValues& values,
                                     const WriteOptions& options) const {
  const ManifestFile file =
      write_optimizer_file(folder, optimizer_file_name(progress_.dtype, rank), shards_, values, options);
  std::string written = file.name.empty() ? "" : to_text(file) + "\n";
  if (carried_ != nullptr) {
    written += to_text(write_carried_file(folder, carried_file_name(progress_.dtype, rank), *carried_, options)) + "\n";
  }
  return written;
}

std::vector<ManifestFile> Hdf5Writer::finish(const fs::path& folder, std::span<const std::string> written,
                                             FileSystem& files) const {
  const ModelStates states{progress_, units_of(shards_)};
  Manifest manifest;
  manifest.files.push_back(write_model_states(folder, states, files));
  for (const std::string& of_rank : written) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) manifest.files.push_back(manifest_file_from_text(line));
  }
  check_complete(manifest, states.units);
  return std::move(manifest.files);
}

}  // namespace mpzero::io
