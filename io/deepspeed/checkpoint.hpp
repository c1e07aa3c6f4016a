#pragma once

#include <memory>
#include <span>

#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"

namespace mpzero::io {

// Opens a DeepSpeed checkpoint. Supports ZeRO stages 0 to 3, any number of ranks, bf16, fp16 and fp32, AdamW states on
// GPUs or CPUs, sub-groups, several parameter groups, elastic checkpoints of stages 1 and 2, and parameter_alignment.
// Reads only the pickles of rank 0. Files of other ranks are opened on first use.
//
// The manifest of a checkpoint from mpzero identifies the files of one save. DeepSpeed's own checkpoints have no
// manifest, so verify_what_was_read() and verify() compare the step counts in the files of all ranks.
//
// An archive contains one checksum per storage. Each read computes the checksum of its range, and
// verify_what_was_read() combines these checksums and compares the results with the archive.
std::unique_ptr<StoredCheckpoint> open_deepspeed_checkpoint(std::shared_ptr<const OpenFolder> folder);

// Creates a writer for the files of DeepSpeedPlan.
//
// DeepSpeed partitions the whole model, but mpzero partitions units, so the values of one rank belong to the files of
// several DeepSpeed ranks. Each rank writes its values directly to these files, without communication. Ranks write
// disjoint pages of a file (OwnPages, PageRemainders). `shards` must outlive the writer.
std::unique_ptr<CheckpointWriter> make_deepspeed_writer(const TrainingProgress& progress,
                                                        std::span<const UnitShard> shards,
                                                        const DeepSpeedSettings& settings);

}  // namespace mpzero::io
