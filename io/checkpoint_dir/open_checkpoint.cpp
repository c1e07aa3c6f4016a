#include "io/checkpoint_dir/open_checkpoint.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/deepspeed/file_names.hpp"
#include "io/deepspeed/reader.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::io {
namespace fs = std::filesystem;
namespace {

class Hdf5Checkpoint final : public StoredCheckpoint {
 public:
  explicit Hdf5Checkpoint(std::shared_ptr<const OpenFolder> folder) : reader_(std::move(folder)) {
    for (const UnitSpec& unit : reader_.units()) {
      parameters_.insert(parameters_.end(), unit.parameters.begin(), unit.parameters.end());
    }
  }

  const fs::path& folder() const override { return reader_.folder(); }
  const RunRecord& run() const override { return reader_.manifest().run; }
  const TrainingProgress& progress() const override { return reader_.progress(); }
  std::span<const ParameterSpec> parameters() const override { return parameters_; }

  void read(const std::string& parameter, StateKind kind, int64_t begin, std::span<float> out) const override {
    reader_.read_parameter(parameter, kind, begin, out);
  }

  void read_unit(const UnitSpec& unit, StateKind kind, int64_t begin, std::span<float> out) const override {
    const bool same = std::any_of(reader_.units().begin(), reader_.units().end(),
                                  [&](const UnitSpec& stored) { return stored == unit; });
    if (same) {
      reader_.read(unit.name, kind, begin, out);
    } else {
      StoredCheckpoint::read_unit(unit, kind, begin, out);
    }
  }

  // Each block was checked when it was read.
  void verify_what_was_read(ProcessGroup& group) const override {
    check_same_files(folder(), {{kManifestName, reader_.manifest().checksum}}, group);
  }
  void verify() const override { reader_.verify(); }

 private:
  CheckpointReader reader_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

bool looks_like_checkpoint(const fs::path& folder) {
  return is_there(folder / kManifestName) || is_deepspeed_checkpoint(folder);
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(const fs::path& folder) {
  return open_checkpoint(std::make_shared<OpenFolder>(folder));
}

std::unique_ptr<StoredCheckpoint> open_checkpoint(std::shared_ptr<const OpenFolder> folder) {
  if (is_deepspeed_checkpoint(*folder)) return std::make_unique<DeepSpeedCheckpoint>(std::move(folder));
  return std::make_unique<Hdf5Checkpoint>(std::move(folder));
}

}  // namespace mpzero::io
