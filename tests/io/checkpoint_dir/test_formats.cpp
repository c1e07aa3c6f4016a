#include <string>

#include "base/error.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/weights/folder_weights.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;

TEST_CASE("a checkpoint of another format is refused by name, wherever a folder is read") {
  const auto [mark, kind] = GENERATE(table<std::string, std::string>({
      {"zero/optimizer_state.pt", "universal"},
      {"latest_universal", "universal"},
      {"mp_rank_01_model_states.pt", "tensor or pipeline parallelism"},
      {"latest_checkpointed_iteration.txt", "Megatron-LM"},
      {"mp_rank_00/model_optim_rng.pt", "Megatron-LM"},
      {"common.pt", "Megatron-LM"},
      {"pytorch_model_fsdp_0/.metadata", "FSDP"},
      {"pytorch_model_fsdp.bin", "FSDP"},
      {".metadata", "torch.distributed.checkpoint"},
      {"trainer_state.json", "Hugging Face Trainer"},
  }));
  INFO(mark);
  const TemporaryFolder folder;
  fs::create_directories((folder / mark).parent_path());
  write_file(folder / mark, "");
  CHECK_THAT(message_of([&] { find_checkpoint(folder.path()); }), Contains(folder.path().string()) && Contains(kind));
  CHECK_THAT(message_of([&] { FolderWeights(folder.path()); }), Contains(folder.path().string()) && Contains(kind));
  // DeepSpeed's kinds have its model states, too. They are not damaged: no older checkpoint is used instead.
  write_file(folder / "mp_rank_00_model_states.pt", "");
  CHECK_THROWS_AS(open_checkpoint(folder.path()), UserError);
  CHECK_THAT(message_of([&] { open_checkpoint(folder.path()); }), Contains(folder.path().string()) && Contains(kind));
  try {
    open_checkpoint(folder.path());
  } catch (const Damaged&) {
    FAIL("it counts as damaged");
  } catch (const UserError&) {
    SUCCEED();
  }
}

TEST_CASE("reads a folder of DeepSpeed checkpoints inside the Trainer's folder") {
  const TemporaryFolder folder;
  write_file(folder / "trainer_state.json", "{}");
  write_file(folder / "latest", "global_step6\n");
  fs::create_directory(folder / "global_step6");
  CHECK(find_checkpoint(folder.path()) == folder / "global_step6");
}

}  // namespace mpzero::io
