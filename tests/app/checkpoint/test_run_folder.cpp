#include <fstream>
#include <sstream>

#include "app/checkpoint/run_folder.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/checkpoint_dir/old_run.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {

using Catch::Contains;

TEST_CASE("a new run does not mix its checkpoints with those of another run") {
  const TinyTraining run;
  run.train({"--max_steps=2"});
  CHECK_THAT(error_from([&] { run.train({"--max_steps=3", "--resume_from_checkpoint=none"}); }),
             Contains(run.checkpoints().string() + " contains model-2steps of another run (run ") &&
                 Contains("this run starts from step 0; use a different --checkpoint_dir, or --overwrite"));
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(3)));
  CHECK(io::open_checkpoint(run.checkpoint(2))->progress().step == 2);
}

TEST_CASE("a refused run leaves no new folders and files") {
  const TinyTraining run;
  const auto refuse = [&](const std::filesystem::path& folder) {
    CHECK_THAT(
        error_from([&] {
          run.train({"--checkpoint_dir=" + folder.string(), "--resume_from_checkpoint=" + run.checkpoint(9).string()});
        }),
        Contains("does not exist"));
    parallel::mpi().barrier();  // rank 0 has removed them
  };
  refuse(run.folder() / "new" / "checkpoints");
  CHECK_FALSE(std::filesystem::exists(run.folder() / "new"));
  const std::filesystem::path other = run.folder() / "other";
  on_rank_0([&] { std::filesystem::create_directory(other); });
  refuse(other);
  CHECK(std::filesystem::is_empty(other));
  run.train({"--max_steps=1"});
  CHECK(std::filesystem::exists(run.checkpoints() / ".lock"));
}

TEST_CASE("a run removes the stop.json of the previous run") {
  const TinyTraining run;
  run.train({"--max_steps=1"});
  std::ofstream(run.checkpoints() / "stop.json") << "{}";
  run.train({"--max_steps=2"});
  CHECK_FALSE(std::filesystem::exists(run.checkpoints() / "stop.json"));
}

TEST_CASE("--overwrite moves the checkpoints of another run to a subfolder") {
  const TinyTraining run;
  run.train({"--max_steps=2"});
  const std::string first = io::open_checkpoint(run.checkpoint(2))->run().id;
  CHECK(run.train({"--max_steps=3", "--overwrite"}) == TrainingEnd::kFinished);
  CHECK_FALSE(std::filesystem::exists(run.checkpoint(2)));
  const std::unique_ptr<io::StoredCheckpoint> saved = io::open_checkpoint(run.checkpoint(3));
  CHECK(saved->run().id != first);
  CHECK(io::open_checkpoint(run.checkpoints() / "old-1" / "model-2steps")->run().id == first);
}

TEST_CASE("a run that resumes from an earlier step keeps its id and owns its later checkpoints") {
  const TinyTraining run;
  run.train({"--max_steps=4", "--checkpoint_freq=2"});
  const std::string id = io::open_checkpoint(run.checkpoint(4))->run().id;
  CHECK(run.train({"--max_steps=3", "--resume_from_checkpoint=" + run.checkpoint(2).string()}) ==
        TrainingEnd::kFinished);
  CHECK(io::open_checkpoint(run.checkpoint(3))->run().id == id);
  if (parallel::mpi().rank() != 0) return;
  std::stringstream events;
  events << std::ifstream(run.folder() / "events.jsonl").rdbuf();
  CHECK_THAT(events.str(), Contains("a checkpoint of this run at step 4, but --resume_from_checkpoint selects step 2"));
}

}  // namespace mpzero
