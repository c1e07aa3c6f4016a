#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/checkpoint/stored_checkpoint.hpp"
#include "io/deepspeed/layout.hpp"
#include "io/torch_save/pickle_value.hpp"

// DeepSpeed's checkpoints without ZeRO (stage 0): one file, mp_rank_00_model_states.pt, holds the weights and the
// optimizer's states of all ranks.
namespace mpzero::io {

// Whether these model states hold the optimizer's states, too.
bool is_without_zero(const pickle::Value& model);

struct StatesWithoutZero {
  std::vector<DeepSpeedLayout::Group> groups;  // one for each tensor of the optimizer
  std::vector<StoredCheckpoint::Alias> aliases;
  std::vector<pickle::Value> masters;      // the fp32 weights of each group
  std::optional<pickle::Value> optimizer;  // torch's state_dict
};

// The optimizer numbers its tensors and does not name them. They are in the order of the model's parameters; of the
// parameter groups with and without weight decay, one has the matrices, the other the vectors. Throws UserError if the
// shapes contradict both.
StatesWithoutZero read_states_without_zero(const pickle::Value& model, const std::filesystem::path& file);

}  // namespace mpzero::io
