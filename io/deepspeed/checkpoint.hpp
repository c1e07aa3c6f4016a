#pragma once

#include <memory>
#include <span>

#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero::io {

// A checkpoint of DeepSpeed's, of ZeRO stages 0 to 3, of any number of ranks, in bf16, fp16 or fp32, with AdamW's
// states on GPUs or CPUs; sub-groups, several parameter groups, elastic checkpoints of stages 1 and 2, and
// parameter_alignment included. Opening it reads the descriptions of rank 0 alone; the other ranks' files are opened
// when something of them is read.
//
// That all files are of one save is known by the manifest of mpzero's own, and of DeepSpeed's by the steps that each
// file counts: verify_what_was_read() and verify() compare those of all ranks.
//
// The archives' own checksums are of whole storages: what is read is checksummed on the way, and
// verify_what_was_read() compares.
std::unique_ptr<StoredCheckpoint> open_deepspeed_checkpoint(std::shared_ptr<const OpenFolder> folder);

// The files of DeepSpeedPlan.
//
// DeepSpeed partitions the whole model where mpzero partitions units, so a rank's values belong into several ranks'
// files. Each rank writes its values straight to their places in all of them: nothing is sent, and ranks on several
// nodes write disjoint pages of one file, which they open for writing only. What is left, less than two pages for each
// stretch of values, goes through a file of the rank's own (PageRemainders), from which one rank puts it in place.
// `shards` outlive it.
std::unique_ptr<CheckpointWriter> make_deepspeed_writer(const TrainingProgress& progress,
                                                        std::span<const UnitShard> shards,
                                                        const DeepSpeedSettings& settings);

}  // namespace mpzero::io
