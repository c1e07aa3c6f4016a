#pragma once

#include <filesystem>
#include <memory>

#include "io/checkpoint/stored_checkpoint.hpp"

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
class DeepSpeedCheckpoint final : public StoredCheckpoint {
 public:
  explicit DeepSpeedCheckpoint(std::shared_ptr<const OpenFolder> folder);
  ~DeepSpeedCheckpoint() override;

  const std::filesystem::path& folder() const override;
  const RunRecord& run() const override;
  const TrainingProgress& progress() const override;
  std::span<const ParameterSpec> parameters() const override;
  std::span<const Alias> aliases() const override;
  bool made_by_mpzero() const override;
  std::optional<double> next_lr() const override;
  std::span<const std::string> warnings() const override;
  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const override;
  void verify_what_was_read(ProcessGroup& group) const override;
  void verify() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpzero::io
