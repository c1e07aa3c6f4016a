#pragma once

#include <memory>
#include <span>

#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero::io {

// Opens a DeepSpeed checkpoint of ZeRO stages 0 to 3, any number of ranks, bf16, fp16 or fp32, with AdamW states on
// GPUs or CPUs, including sub-groups, several parameter groups, elastic checkpoints of stages 1 and 2, and
// parameter_alignment. Reads only the descriptions of rank 0; other ranks' files are opened at their first read.
//
// mpzero's manifest proves that all files are from one save. For DeepSpeed's own checkpoints, verify_what_was_read()
// and verify() compare the step counts in the files of all ranks.
//
// An archive has one checksum per storage: each read computes the checksums of its ranges, and verify_what_was_read()
// compares them.
std::unique_ptr<StoredCheckpoint> open_deepspeed_checkpoint(std::shared_ptr<const OpenFolder> folder);

// Writes the files of DeepSpeedPlan.
//
// DeepSpeed partitions the whole model, mpzero partitions units, so a rank's values belong to several ranks' files.
// Each rank writes its values directly to their positions, without communication. Ranks on several hosts write disjoint
// pages of one file, which they open write-only. The remaining bytes, less than two pages for each range of values, go
// to the rank's own file (PageRemainders), from which one rank copies them into place. `shards` must outlive the
// writer.
std::unique_ptr<CheckpointWriter> make_deepspeed_writer(const TrainingProgress& progress,
                                                        std::span<const UnitShard> shards,
                                                        const DeepSpeedSettings& settings);

}  // namespace mpzero::io
