#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/zip_reader.hpp"

// DeepSpeed checkpoints without ZeRO (stage 0). The file mp_rank_00_model_states.pt contains all weights and optimizer
// states.
namespace mpzero::io {

// Returns true if the model states include optimizer states.
bool is_without_zero(const pickle::Value& model);

struct StatesWithoutZero {
  std::vector<DeepSpeedLayout::Group> groups;  // one per optimizer tensor
  std::vector<StoredCheckpoint::Alias> aliases;
  std::vector<pickle::Value> masters;      // fp32 weights per group
  bool has_own_masters = false;            // true if the optimizer has separate fp32 master weights
  std::optional<pickle::Value> optimizer;  // state_dict of the torch optimizer
};

// The optimizer states have indices instead of parameter names. The indices follow the order of the model's parameters,
// in one group or in two groups (matrices with weight decay, vectors without). Throws UserError if neither order
// matches the shapes or, without separate master weights, the group sizes.
StatesWithoutZero read_states_without_zero(const pickle::Value& model, const std::filesystem::path& file);

// Throws UserError if the rounded master weights differ from the model's weights. Comparing shapes is not sufficient
// because layers have equal shapes. Compares only the first values of each parameter.
void check_masters_are_weights(TorchZipReader& archive, const StatesWithoutZero& states);

}  // namespace mpzero::io
