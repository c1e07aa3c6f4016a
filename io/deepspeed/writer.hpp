#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/shard_files.hpp"
#include "io/deepspeed/plan.hpp"

// The steps of a save in DeepSpeed's format; see checkpoint_save.hpp, whose steps they are part of.
//
// DeepSpeed partitions the whole model where mpzero partitions units, so a rank's values belong into several ranks'
// files. Each rank writes its values straight to their places in all of them: nothing is sent, and ranks on several
// nodes write disjoint pages of one file, which they open for writing only. What is left, less than two pages for each
// stretch of values, goes through a file of the rank's own (PageRemainders), from which one rank puts it in place.
namespace mpzero::io {

// On every rank, from any thread: writes and syncs its shards of every unit. Returns what finish_deepspeed_files needs
// to know of them. `folder` is empty before the first rank begins.
std::string write_deepspeed_shards(const std::filesystem::path& folder, const DeepSpeedPlan& plan, int rank,
                                   std::span<const UnitShard> shards, const ShardValues& values,
                                   const WriteOptions& options = {});

// On one rank, when every rank's write_deepspeed_shards has returned; `written` are their answers. Makes the files
// whole and syncs them. Returns the directory's checksum of each (TorchZipLayout::write_rest), in the plan's order.
// Throws Failure unless the ranks together have written every value exactly once.
std::vector<uint64_t> finish_deepspeed_files(const std::filesystem::path& folder, const DeepSpeedPlan& plan,
                                             std::span<const std::string> written, FileSystem& files = disk());

}  // namespace mpzero::io
