#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/files/open_folder.hpp"

namespace mpzero::io {

// A checkpoint in mpzero's HDF5 format (io/checkpoint/shard_files.hpp). The constructor checks the manifest, the
// completeness and sizes of the files, and the model states. Reads verify checksums in blocks of 4 MiB, each block
// once.
class Hdf5Checkpoint final : public StoredCheckpoint {
 public:
  explicit Hdf5Checkpoint(std::shared_ptr<const OpenFolder> folder);
  ~Hdf5Checkpoint() override;
  Hdf5Checkpoint(Hdf5Checkpoint&&) noexcept;

  const Manifest& manifest() const;
  const std::vector<UnitSpec>& units() const;

  const std::filesystem::path& folder() const override;
  const RunRecord& run() const override;
  const TrainingProgress& progress() const override;
  std::span<const ParameterSpec> parameters() const override;
  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;
  void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const override;
  int64_t carrying_ranks() const override;
  std::optional<StoredCarried> carried(int rank, std::span<const CarriedValues> wanted) const override;
  void verify_what_was_read(ProcessGroup& group) const override;
  void verify() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
