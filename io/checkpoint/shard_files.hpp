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

// The two kinds of HDF5 files in a checkpoint.
//
// An optimizer file holds a group for each unit, with the attributes `begin` and `count` and the one-dimensional float
// datasets `master`, `exp_avg` and `exp_avg_sq`. HDF5 creates the file in memory, where it takes a few KiB without the
// values. Then structure and values are written to the disk sequentially.
namespace mpzero::io {

struct ModelStates {
  TrainingProgress progress;
  std::vector<UnitSpec> units;
};

// Parses the bytes of a model file. `file` is used in messages.
ModelStates read_model_states(const std::filesystem::path& file, std::span<const std::byte> bytes);

// Writes an optimizer file for each rank that has values, the model states and, for ranks with carried state, a file of
// it (io/checkpoint/carried_file.hpp).
class Hdf5Writer final : public CheckpointWriter {
 public:
  // The arguments must outlive the writer. `carried`: this rank's carried state; null: none.
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
