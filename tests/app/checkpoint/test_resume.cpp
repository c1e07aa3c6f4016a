#include <fstream>

#include "app/checkpoint/resume.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/virtual_nodes.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

// A run that has saved its steps 2 and 4.
class SavedRun : public TinyTraining {
 public:
  SavedRun() { train({"--max_steps=4", "--checkpoint_freq=2"}); }

  // `relative`: see set_up().
  std::optional<Resumed> resume(std::vector<std::string> flags = {}, bool relative = false,
                                ProcessGroup& group = parallel::mpi()) {
    flags.emplace_back("--max_steps=4");
    RunSetup setup = set_up(std::move(flags), relative);
    setup.data = identify_data(setup.config, parallel::mpi());
    engine.emplace(setup);
    warnings.clear();
    return resume_run(setup, engine->decoder.units(), engine->engine, group, warnings);
  }

  std::optional<TinyEngine> engine;
  std::vector<std::string> warnings;
};

// Its size is what it was.
void damage(const std::filesystem::path& file) {
  on_rank_0([&] {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-1, std::ios::end);
    bytes.put('!');
  });
}

// The current folder during its lifetime.
class CurrentFolder {
 public:
  explicit CurrentFolder(const std::filesystem::path& folder) { std::filesystem::current_path(folder); }
  ~CurrentFolder() { std::filesystem::current_path(before_); }
  CurrentFolder(const CurrentFolder&) = delete;
  CurrentFolder& operator=(const CurrentFolder&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

// The ranks of the test program. Before its collective number `call`, from 0, rank 0 does the work.
class WorksBeforeCall final : public ProcessGroup {
 public:
  WorksBeforeCall(int call, std::function<void()> work) : call_(call), work_(std::move(work)) {}
  int rank() const override { return parallel::mpi().rank(); }
  int world_size() const override { return parallel::mpi().world_size(); }
  void barrier() override { parallel::mpi().barrier(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    if (calls_++ == call_ && is_rank_0()) work_();
    return parallel::mpi().all_gather(text);
  }
  bool has_worked() const { return calls_ > call_; }

 private:
  int call_;
  int calls_ = 0;
  std::function<void()> work_;
};

// The ranks of the test program. When they have agreed on a checkpoint whose path contains `name`, each opens it. After
// that, before its next collective call, the last rank does the work once.
class WorksAfterOpening final : public ProcessGroup {
 public:
  WorksAfterOpening(std::string name, std::function<void()> work) : name_(std::move(name)), work_(std::move(work)) {}
  int rank() const override { return parallel::mpi().rank(); }
  int world_size() const override { return parallel::mpi().world_size(); }
  void barrier() override { parallel::mpi().barrier(); }
  std::vector<std::string> all_gather(const std::string& text) override {
    if (has_agreed_ && rank() + 1 == world_size()) std::exchange(work_, [] {})();
    std::vector<std::string> texts = parallel::mpi().all_gather(text);
    for (const std::string& each : texts) has_agreed_ = has_agreed_ || each.find(name_) != std::string::npos;
    return texts;
  }

 private:
  std::string name_;
  std::function<void()> work_;
  bool has_agreed_ = false;
};

}  // namespace

TEST_CASE("without a checkpoint, a run does not resume") {
  const TinyTraining run;
  const RunSetup setup = run.set_up({"--max_steps=6"});
  TinyEngine engine(setup);
  std::vector<std::string> warnings;
  CHECK_FALSE(resume_run(setup, engine.decoder.units(), engine.engine, parallel::mpi(), warnings));
  CHECK(warnings.empty());
}

TEST_CASE("a run resumes from its newest checkpoint or from the selected one") {
  SavedRun run;
  const std::optional<Resumed> newest = run.resume();
  REQUIRE(newest);
  CHECK(newest->position.step == 4);
  CHECK(newest->position.sequences_seen == 4 * 4 * parallel::mpi().world_size());
  CHECK(newest->checkpoint == run.checkpoint(4));
  CHECK(newest->changes.empty());
  const std::optional<Resumed> given = run.resume({"--resume_from_checkpoint=" + run.checkpoint(2).string()});
  REQUIRE(given);
  CHECK(given->position.step == 2);
  CHECK(run.warnings.empty());
}

TEST_CASE("if the newest checkpoint is damaged, a run resumes from the previous one with a warning") {
  SavedRun run;
  damage(run.checkpoint(4) / "manifest.json");
  const std::optional<Resumed> resumed = run.resume();
  REQUIRE(resumed);
  CHECK(resumed->position.step == 2);
  REQUIRE(run.warnings.size() == 1);
  CHECK_THAT(run.warnings.front(), Contains(run.checkpoint(4).string()) && Contains("damaged"));
  CHECK_THAT(error_from([&] { run.resume({"--resume_strict"}); }), Contains(run.checkpoint(4).string()));
}

TEST_CASE("the only message about a skipped checkpoint is the reason") {
  if (parallel::mpi().world_size() == 1) return;
  SavedRun run;
  damage(run.checkpoint(4) / "zero_pp_rank_0_mp_rank_00_optim_states.h5");
  // It compresses, which the saved run did not.
  RunSetup setup = run.set_up({"--max_steps=4"});
  setup.data = identify_data(setup.config, parallel::mpi());
  setup.layout = {.nodes = parallel::mpi().world_size(), .ranks_per_node = 1};
  parallel::ZeroOptions options = zero_options(setup.config, at::kCPU);
  options.compression.gradient_bits = 8;
  parallel::VirtualNodes parameters(1), gradients(1);
  const model::Decoder decoder(setup.model);
  parallel::ZeroEngine engine(decoder.units(), options, parameters.levels(), gradients.levels());
  std::vector<std::string> warnings;
  const std::optional<Resumed> resumed = resume_run(setup, decoder.units(), engine, parallel::mpi(), warnings);
  REQUIRE(resumed);
  CHECK(resumed->position.step == 2);
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Contains(run.checkpoint(2).string() + " contains no compression state"));
  CHECK_THAT(warnings[1], Contains(run.checkpoint(4).string()) && Contains("damaged"));
}

TEST_CASE("a checkpoint that cannot be opened because of a system error is not skipped") {
  SavedRun run;
  const std::filesystem::path manifest = run.checkpoint(4) / "manifest.json";
  on_rank_0([&] {
    std::filesystem::remove(manifest);
    std::filesystem::create_symlink(manifest.filename(), manifest);
  });
  CHECK_THROWS_WITH(run.resume(), Contains(manifest.string()));
}

TEST_CASE("refuses to resume a different model") {
  SavedRun run;
  RunSetup setup = run.set_up({"--max_steps=6"});
  setup.model.num_hidden_layers = 3;
  TinyEngine engine(setup);
  std::vector<std::string> warnings;
  const std::string refused =
      error_from([&] { resume_run(setup, engine.decoder.units(), engine.engine, parallel::mpi(), warnings); });
  CHECK_THAT(refused, Contains(run.checkpoint(4).string()));
}

TEST_CASE("if `latest` is damaged and the folder contains two runs, the user must choose") {
  SavedRun run;
  const SavedRun other;
  on_rank_0([&] {
    for (const int step : {2, 4}) {
      std::filesystem::rename(other.checkpoint(step), run.checkpoints() / fmt::format("model-{}steps", step + 1));
    }
  });
  CHECK(run.resume()->position.step == 4);
  damage(run.checkpoint(4) / "manifest.json");
  CHECK_THAT(error_from([&] { run.resume(); }), Contains("checkpoints of 2 runs; pass --resume_from_checkpoint") &&
                                                    Contains(run.checkpoint(2).string() + " (run ") &&
                                                    Contains(run.checkpoint(5).string() + " (run "));
}

TEST_CASE("ranks that read different files of the same name do not resume") {
  if (parallel::mpi().world_size() == 1) return;
  SavedRun first;
  const SavedRun second;
  const CurrentFolder folder(is_rank_0() ? first.folder() : second.folder());
  CHECK_THROWS_WITH(
      first.resume({"--resume_from_checkpoint=checkpoints/model-4steps"}, /*relative=*/true),
      Contains("checkpoints/model-4steps") && Contains("the ranks read manifest.json from different saves"));
}

TEST_CASE("a rank that sees a checkpoint later than other ranks resumes from it") {
  namespace fs = std::filesystem;
  if (parallel::mpi().world_size() == 1) return;
  SavedRun run;
  const fs::path late = run.folder() / "late";
  on_rank_0([&] {
    fs::create_directory(late);
    for (const char* name : {"ds_config.json", "model.json", "train.h5"}) fs::copy(run.folder() / name, late / name);
  });
  const bool is_late = parallel::mpi().rank() + 1 == parallel::mpi().world_size();
  const CurrentFolder folder(is_late ? late : run.folder());
  WorksAfterOpening group("checkpoints/model-4steps",
                          [&] { fs::create_symlink(run.checkpoints(), late / "checkpoints"); });
  const std::optional<Resumed> resumed =
      run.resume({"--resume_from_checkpoint=checkpoints/model-4steps"}, /*relative=*/true, group);
  REQUIRE(resumed);
  CHECK(resumed->position.step == 4);
  CHECK(run.warnings.empty());
}

TEST_CASE("a checkpoint that is replaced during a read is read again") {
  namespace fs = std::filesystem;
  SavedRun run;
  const fs::path newest = run.checkpoint(4);
  const fs::path same = run.folder() / "same";
  const fs::path before = run.folder() / "before";
  bool was_read_again = false;
  bool has_worked = true;
  for (int call = 0; has_worked; ++call) {
    INFO(call);
    on_rank_0([&] {
      fs::remove_all(same);
      fs::copy(newest, same, fs::copy_options::recursive);
    });
    WorksBeforeCall group(call, [&] {
      fs::rename(newest, before);
      fs::rename(same, newest);
      fs::remove_all(before);
    });
    CHECK(run.resume({}, /*relative=*/false, group)->position.step == 4);
    has_worked = group.has_worked();
    for (const std::string& warning : run.warnings) {
      CHECK(warning == newest.string() + " was replaced by another process while being read; reading it again.");
      was_read_again = true;
    }
  }
  CHECK(was_read_again);
}

}  // namespace mpzero
