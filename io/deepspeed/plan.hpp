#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/optimizer_state.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/deepspeed/layout.hpp"
#include "io/torch_save/zip_writer.hpp"

namespace mpzero::io {

// What DeepSpeed's files say of the optimizer in addition to its states.
struct DeepSpeedOptimizer {
  double next_lr = 0;  // of the update that comes next
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  bool bias_correction = true;
  double gradient_clipping = 0;
};

struct DeepSpeedSettings {
  int ranks = 1;  // DeepSpeed resumes on as many
  DeepSpeedOptimizer optimizer;
  // zero_optimization.sub_group_size, elements of a rank: how stage 3 groups the parameters. DeepSpeed resumes with the
  // same.
  int64_t sub_group_size = 1'000'000'000;
};

// All files of a checkpoint in DeepSpeed's format, as its engine would name, lay out and describe them for `ranks`
// ranks: engine.load_checkpoint and zero_to_fp32.py of DeepSpeed 0.19.8 read them. Depends on its arguments only, so
// that every rank knows where in which file its values go; ranks write into each other's files.
//
// Of stage 0, which DeepSpeed saves in another way, these are the files of stage 1.
class DeepSpeedPlan {
 public:
  DeepSpeedPlan(const TrainingProgress& progress, std::span<const UnitSpec> units, const DeepSpeedSettings& settings);

  struct PlannedFile {
    std::string name;
    TorchZipLayout layout;
    std::vector<int64_t> padding_bytes;  // of each storage: what no parameter fills
  };
  const std::vector<PlannedFile>& files() const { return files_; }
  const DeepSpeedLayout& layout() const { return layout_; }

  // A storage of a file.
  struct Place {
    size_t file = 0;
    size_t storage = 0;
    int64_t offset = 0;  // in bytes
  };
  // Where a stretch of elements goes that visit() has found.
  Place place(const DeepSpeedLayout::Slice& slice, StateKind kind) const;
  // Where the weights that the model computes with go, in its type: stages 1 and 2 keep all of them in the model's
  // file.
  bool has_module() const { return layout_.stage() != 3; }
  Place module_place(const std::string& parameter, int64_t begin) const;
  int64_t module_element_bytes() const { return bf16_ ? 2 : 4; }

 private:
  void add_model_files(const TrainingProgress& progress, const DeepSpeedSettings& settings);
  void add_optimizer_file(int rank, const TrainingProgress& progress, const DeepSpeedSettings& settings);

  bool bf16_;
  DeepSpeedLayout layout_;
  std::vector<PlannedFile> files_;
  size_t num_model_files_ = 0;
};

}  // namespace mpzero::io
