#pragma once

#include <string>

#include "io/files/open_folder.hpp"

// The names of DeepSpeed's files, for runs without tensor or pipeline parallelism.
namespace mpzero::io {

// "mp_rank_00_model_states.pt". At stage 3 there is one per rank: "zero_pp_rank_1_mp_rank_00_model_states.pt".
std::string deepspeed_model_file(int stage, int rank);
// "zero_pp_rank_1_mp_rank_00_optim_states.pt", with the prefix "bf16_" if the weights are bf16.
std::string deepspeed_optimizer_file(bool bf16, int rank);

// Whether `folder` (a tag folder) holds model states under one of these names.
bool is_deepspeed_checkpoint(const OpenFolder& folder);

}  // namespace mpzero::io
