#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/carried_file.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/manifest.hpp"

// HDF5 files with optimizer states and model states in a checkpoint.
//
// An optimizer file contains one group per unit, with the attributes `begin` and `count` and the one-dimensional float
// datasets `master`, `exp_avg` and `exp_avg_sq`.
namespace mpzero::io {

struct ModelStates {
  TrainingProgress progress;
  std::vector<UnitSpec> units;
};

// Parses the bytes of a model file. `file`: path of the model file, for messages.
ModelStates read_model_states(const std::filesystem::path& file, std::span<const std::byte> bytes);

// Writes the model states, an optimizer file for each rank with values, and a carried-state file for each rank with
// carried state (io/checkpoint/carried_file.hpp).
class Hdf5Writer final : public CheckpointWriter {
 public:
  // The arguments must outlive the writer. `carried` is this rank's carried state, or null.
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
