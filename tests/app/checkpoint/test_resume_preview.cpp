#include <fstream>

#include "app/checkpoint/resume_preview.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

ResumePreview preview_all(const TinyTraining& run, std::vector<std::string> flags, std::vector<std::string>& warnings) {
  flags.emplace_back("--max_steps=6");
  RunSetup setup = run.set_up(flags);
  setup.data = identify_data(setup.config, parallel::mpi());
  return preview_resume(setup, model::Decoder(setup.model).units(), warnings);
}

std::optional<Resumed> preview(const TinyTraining& run, const std::vector<std::string>& flags,
                               std::vector<std::string>& warnings) {
  return preview_all(run, flags, warnings).resumed;
}

TEST_CASE("a preview reports the checkpoint that the run resumes from") {
  const TinyTraining run;
  std::vector<std::string> warnings;
  CHECK_FALSE(preview(run, {}, warnings));
  run.train({"--max_steps=4", "--checkpoint_freq=2"});
  const std::optional<Resumed> newest = preview(run, {}, warnings);
  REQUIRE(newest);
  CHECK(newest->checkpoint == run.checkpoint(4));
  CHECK(newest->position.step == 4);
  CHECK_THAT(newest->changes.at(0), Contains("max_steps 4 -> 6"));
  CHECK(warnings.empty());
  CHECK_THAT(error_from([&] { preview(run, {"--seed=1"}, warnings); }), Contains("--seed") && Contains("--overwrite"));
  CHECK_THAT(error_from([&] { preview(run, {"--resume_from_checkpoint=none"}, warnings); }),
             Contains("of another run"));
  CHECK_FALSE(preview(run, {"--overwrite"}, warnings));
  CHECK(preview_all(run, {"--overwrite"}, warnings).moved_to == run.checkpoints() / "old-1");
  CHECK_FALSE(preview_all(run, {}, warnings).moved_to);

  parallel::mpi().barrier();  // the other rank may still read the manifest
  on_rank_0([&] { std::ofstream(run.checkpoint(4) / "manifest.json") << "{"; });
  const std::optional<Resumed> older = preview(run, {}, warnings);
  REQUIRE(older);
  CHECK(older->checkpoint == run.checkpoint(2));
  CHECK_THAT(warnings.at(0), Contains(run.checkpoint(4).string()));
  parallel::mpi().barrier();
}

}  // namespace
}  // namespace mpzero
