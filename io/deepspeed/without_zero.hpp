#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/zip_reader.hpp"

// DeepSpeed's checkpoints without ZeRO (stage 0): one file, mp_rank_00_model_states.pt, holds the weights and the
// optimizer's states of all ranks.
namespace mpzero::io {

// Whether these model states hold the optimizer's states, too.
bool is_without_zero(const pickle::Value& model);

struct StatesWithoutZero {
  std::vector<DeepSpeedLayout::Group> groups;  // one for each tensor of the optimizer
  std::vector<StoredCheckpoint::Alias> aliases;
  std::vector<pickle::Value> masters;      // the fp32 weights of each group
  bool has_own_masters = false;            // the optimizer's, beside those that the model computes with
  std::optional<pickle::Value> optimizer;  // torch's state_dict
};

// The optimizer numbers its tensors and does not name them. They are in the order of the model's parameters; of the
// parameter groups with and without weight decay, one has the matrices, the other the vectors. Throws UserError if the
// shapes contradict both, or without own masters the groups.
StatesWithoutZero read_states_without_zero(const pickle::Value& model, const std::filesystem::path& file);

// Layers have equal shapes. Throws UserError unless the optimizer's masters, rounded, are the model's weights. Compares
// the first values of each parameter.
void check_masters_are_weights(TorchZipReader& archive, const StatesWithoutZero& states);

}  // namespace mpzero::io
