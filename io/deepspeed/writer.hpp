#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero::io {

// The files of DeepSpeedPlan.
//
// DeepSpeed partitions the whole model where mpzero partitions units, so a rank's values belong into several ranks'
// files. Each rank writes its values straight to their places in all of them: nothing is sent, and ranks on several
// nodes write disjoint pages of one file, which they open for writing only. What is left, less than two pages for each
// stretch of values, goes through a file of the rank's own (PageRemainders), from which one rank puts it in place.
class DeepSpeedWriter final : public CheckpointWriter {
 public:
  // `shards` outlives it.
  DeepSpeedWriter(const TrainingProgress& progress, std::span<const UnitShard> shards,
                  const DeepSpeedSettings& settings)
      : plan_(progress, units_of(shards), settings), shards_(shards) {}

  std::string write_shards(const std::filesystem::path& folder, int rank, const ShardValues& values,
                           const WriteOptions& options) const override;
  std::vector<ManifestFile> finish(const std::filesystem::path& folder, std::span<const std::string> written,
                                   FileSystem& files) const override;

 private:
  DeepSpeedPlan plan_;
  std::span<const UnitShard> shards_;
};

}  // namespace mpzero::io
