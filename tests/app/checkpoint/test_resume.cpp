#include <fstream>

#include "app/checkpoint/resume.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

// A run that has saved its steps 2 and 4.
class SavedRun : public TinyTraining {
 public:
  SavedRun() { train({"--max_steps=4", "--checkpoint_freq=2"}); }

  std::optional<Resumed> resume(std::vector<std::string> flags = {}) {
    flags.emplace_back("--max_steps=4");
    RunSetup setup = set_up(std::move(flags));
    SingleProcess alone;
    setup.data = identify_data(setup.config, alone);
    engine.emplace(setup);
    warnings.clear();
    return resume_run(setup, engine->decoder.units(), engine->engine, alone, warnings);
  }

  std::optional<TinyEngine> engine;
  std::vector<std::string> warnings;
};

// Its size is what it was.
void damage(const std::filesystem::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(-1, std::ios::end);
  bytes.put('!');
}

}  // namespace

TEST_CASE("without a checkpoint there is nothing to resume") {
  const TinyTraining run;
  const RunSetup setup = run.set_up({"--max_steps=6"});
  TinyEngine engine(setup);
  SingleProcess alone;
  std::vector<std::string> warnings;
  CHECK_FALSE(resume_run(setup, engine.decoder.units(), engine.engine, alone, warnings));
  CHECK(warnings.empty());
}

TEST_CASE("a run resumes from its newest checkpoint, and from the one that it is given") {
  SavedRun run;
  const std::optional<Resumed> newest = run.resume();
  REQUIRE(newest);
  CHECK(newest->position.step == 4);
  CHECK(newest->position.sequences_seen == 4 * 4);
  CHECK(newest->checkpoint == run.checkpoint(4));
  CHECK(newest->changes.empty());
  const std::optional<Resumed> given = run.resume({"--resume_from_checkpoint=" + run.checkpoint(2).string()});
  REQUIRE(given);
  CHECK(given->position.step == 2);
  CHECK(run.warnings.empty());
}

TEST_CASE("where the newest checkpoint is damaged, a run resumes from the one before and says so") {
  SavedRun run;
  damage(run.checkpoint(4) / "manifest.json");
  const std::optional<Resumed> resumed = run.resume();
  REQUIRE(resumed);
  CHECK(resumed->position.step == 2);
  REQUIRE(run.warnings.size() == 1);
  CHECK_THAT(run.warnings.front(), Contains(run.checkpoint(4).string()) && Contains("damaged"));
  CHECK_THAT(error_from([&] { run.resume({"--resume_strict"}); }), Contains(run.checkpoint(4).string()));
}

TEST_CASE("a checkpoint that the system does not open is not passed over") {
  SavedRun run;
  const std::filesystem::path manifest = run.checkpoint(4) / "manifest.json";
  std::filesystem::remove(manifest);
  std::filesystem::create_symlink(manifest.filename(), manifest);
  CHECK_THROWS_WITH(run.resume(), Contains(manifest.string()));
}

TEST_CASE("another model is refused") {
  SavedRun run;
  RunSetup setup = run.set_up({"--max_steps=6"});
  setup.model.num_hidden_layers = 3;
  TinyEngine engine(setup);
  SingleProcess alone;
  std::vector<std::string> warnings;
  const std::string refused =
      error_from([&] { resume_run(setup, engine.decoder.units(), engine.engine, alone, warnings); });
  CHECK_THAT(refused, Contains(run.checkpoint(4).string()));
}

}  // namespace mpzero
