#include "io/deepspeed/file_names.hpp"

#include <fmt/format.h>

namespace mpzero::io {

std::string deepspeed_model_file(int stage, int rank) {
  return stage == 3 ? fmt::format("zero_pp_rank_{}_mp_rank_00_model_states.pt", rank) : "mp_rank_00_model_states.pt";
}

std::string deepspeed_optimizer_file(bool bf16, int rank) {
  return fmt::format("{}zero_pp_rank_{}_mp_rank_00_optim_states.pt", bf16 ? "bf16_" : "", rank);
}

bool is_deepspeed_checkpoint(const OpenFolder& folder) {
  return folder.holds(deepspeed_model_file(2, 0)) || folder.holds(deepspeed_model_file(3, 0));
}

}  // namespace mpzero::io
