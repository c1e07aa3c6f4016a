#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"

namespace mpzero::io {

// mpzero's own format (io/checkpoint/shard_files.hpp): an optimizer file of each rank that holds values, the model
// states, and where ranks carry more a file of it (io/checkpoint/carried_file.hpp).
class Hdf5Writer final : public CheckpointWriter {
 public:
  // All outlive it. `carried`: by this rank, null: nothing.
  Hdf5Writer(const TrainingProgress& progress, std::span<const UnitShard> shards, const CarriedState* carried = nullptr)
      : progress_(progress), shards_(shards), carried_(carried) {}

  std::string write_shards(const std::filesystem::path& folder, int rank, const ShardValues& values,
                           const WriteOptions& options) const override;
  std::vector<ManifestFile> finish(const std::filesystem::path& folder, std::span<const std::string> written,
                                   FileSystem& files) const override;

 private:
  const TrainingProgress& progress_;
  std::span<const UnitShard> shards_;
  const CarriedState* carried_;
};

}  // namespace mpzero::io
