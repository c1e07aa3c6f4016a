#include "app/checkpoint/resume_choice.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

TEST_CASE("the newest checkpoint is tried first; a selected checkpoint is the only candidate") {
  const TinyTraining run;
  run.train({"--max_steps=4", "--checkpoint_freq=2"});
  const auto folders = [&](const std::vector<std::string>& flags) {
    return choose_checkpoints(run.set_up(flags).config, parallel::mpi()).folders;
  };
  CHECK(folders({}) == std::vector{run.checkpoint(4), run.checkpoint(2)});
  CHECK(folders({"--resume_from_checkpoint=" + run.checkpoint(2).string()}) == std::vector{run.checkpoint(2)});
  on_rank_0([&] { std::filesystem::remove(run.checkpoints() / "latest"); });
  CHECK_THAT(error_from([&] { folders({"--resume_strict"}); }), Contains("--resume_from_checkpoint"));
}

TEST_CASE("a message omits the remedy that the run applies automatically") {
  CHECK(without_remedy("c/latest is damaged; write the name of a checkpoint into it") == "c/latest is damaged");
  CHECK(without_remedy("c is damaged") == "c is damaged");
}

}  // namespace
}  // namespace mpzero
