#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero::io::testing {

// A checkpoint without files. Tests set the members that the tested code reads. The values are undefined.
class StubCheckpoint : public StoredCheckpoint {
 public:
  const std::filesystem::path& folder() const override { return path; }
  const RunRecord& run() const override { return record; }
  const TrainingProgress& progress() const override { return made; }
  std::span<const ParameterSpec> parameters() const override { return specs; }
  bool made_by_mpzero() const override { return by_mpzero; }
  void verify_what_was_read(ProcessGroup&) const override {}
  void verify() const override {}

  std::filesystem::path path = "checkpoints/tiny-5steps";
  RunRecord record;
  TrainingProgress made;
  std::vector<ParameterSpec> specs;
  bool by_mpzero = true;

 private:
  void read_values(const ParameterSpec&, StateKind, int64_t, std::span<float>) const override {}
};

}  // namespace mpzero::io::testing
