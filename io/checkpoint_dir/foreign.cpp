#include "io/checkpoint_dir/foreign.hpp"

#include <array>
#include <initializer_list>
#include <string_view>

#include "base/error.hpp"

namespace mpzero::io {
namespace {

constexpr std::string_view kExport =
    "export its weights as safetensors with the program that saved it and give them to --init_from";

struct Foreign {
  std::string_view mark;  // a file or folder that only this kind has
  std::string_view kind;
  std::string_view remedy;
};

// The outer folder before what it may hold: of several marks the first counts.
constexpr std::array kForeign = {
    Foreign{"zero/optimizer_state.pt", "DeepSpeed's universal checkpoint (ds_to_universal)",
            "resume from the ZeRO checkpoint that it was converted from, which any number of ranks can"},
    Foreign{"latest_universal", "a folder of DeepSpeed's universal checkpoints (ds_to_universal)",
            "resume from the ZeRO checkpoint that they were converted from, which any number of ranks can"},
    Foreign{"mp_rank_01_model_states.pt", "DeepSpeed's checkpoint with tensor or pipeline parallelism", kExport},
    Foreign{"latest_checkpointed_iteration.txt", "a folder of Megatron-LM's checkpoints", kExport},
    Foreign{"mp_rank_00/model_optim_rng.pt", "Megatron-LM's checkpoint", kExport},
    Foreign{"common.pt", "Megatron-LM's distributed checkpoint", kExport},
    Foreign{"pytorch_model_fsdp_0", "an FSDP checkpoint (torch.distributed.checkpoint)",
            "convert it with `accelerate merge-weights` and give the result to --init_from"},
    Foreign{"pytorch_model_fsdp.bin", "an FSDP checkpoint with its full state_dict", kExport},
    Foreign{".metadata", "a checkpoint of torch.distributed.checkpoint (.distcp)", kExport},
    Foreign{"trainer_state.json", "the Hugging Face Trainer's checkpoint",
            "start a new run from its weights with --init_from"},
};

}  // namespace

void refuse_foreign(const OpenFolder& folder) {
  for (const Foreign& foreign : kForeign) {
    if (!folder.holds(std::string(foreign.mark))) continue;
    throw_user_error("{} is {}, as its {} shows, which mpzero does not read: {}", folder.path().string(), foreign.kind,
                     foreign.mark, foreign.remedy);
  }
}

}  // namespace mpzero::io
