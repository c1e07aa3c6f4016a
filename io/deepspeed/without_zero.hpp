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

// Whether these model states include the optimizer's states.
bool is_without_zero(const pickle::Value& model);

struct StatesWithoutZero {
  std::vector<DeepSpeedLayout::Group> groups;  // one for each tensor of the optimizer
  std::vector<StoredCheckpoint::Alias> aliases;
  std::vector<pickle::Value> masters;      // the fp32 weights of each group
  bool has_own_masters = false;            // the optimizer has its own, besides the compute weights
  std::optional<pickle::Value> optimizer;  // torch's state_dict
};

// The optimizer numbers its tensors without naming them. They follow the order of the model's parameters, in one group
// or in two by weight decay (matrices and vectors). Throws UserError if neither order matches
// the shapes and, without own masters, the group sizes.
StatesWithoutZero read_states_without_zero(const pickle::Value& model, const std::filesystem::path& file);

// Throws UserError unless the optimizer's masters, rounded, equal the model's weights: shapes alone do not distinguish
// layers. Compares the first values of each parameter.
void check_masters_are_weights(TorchZipReader& archive, const StatesWithoutZero& states);

}  // namespace mpzero::io
