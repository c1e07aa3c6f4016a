#include <signal.h>
#include <sys/resource.h>

#include "app/checkpoint/checkpointer.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

// A checkpointer and what it needs, without the trainer: a test takes the steps.
class Saves {
 public:
  explicit Saves(const std::vector<std::string>& flags)
      : setup_(run_.set_up(flags)),
        tiny_(setup_),
        log_(setup_.config, parallel::mpi(), std::nullopt),
        folder_(setup_.config, parallel::mpi(), log_),
        checkpointer_(setup_, tiny_.decoder.units(), tiny_.engine, at::kCPU, parallel::mpi(), log_, folder_) {
    folder_.open();
    setup_.run = folder_.identify(std::nullopt);
    setup_.start = io::new_run_id();
    std::vector<std::string> warnings;
    initialize_run(setup_, tiny_.decoder.units(), tiny_.engine, parallel::mpi(), warnings);
    checkpointer_.prepare(0);
  }

  void step(int64_t step, bool stops = false) {
    checkpointer_.before_update();
    checkpointer_.after_step(position(step), /*seconds=*/0.001, stops);
  }
  RunPosition position(int64_t step) const {
    return {.step = step, .sequences_seen = 4 * step, .tokens_seen = 64 * step};
  }
  Checkpointer& operator*() { return checkpointer_; }
  Checkpointer* operator->() { return &checkpointer_; }

  // The steps of the checkpoints that can be read in full.
  std::vector<int64_t> complete() const {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 20; ++step) {
      if (!std::filesystem::exists(run_.checkpoint(step))) continue;
      const std::unique_ptr<io::StoredCheckpoint> checkpoint = io::open_checkpoint(run_.checkpoint(step));
      checkpoint->verify();
      if (checkpoint->progress().step == step) steps.push_back(step);
    }
    return steps;
  }

 private:
  TinyTraining run_;
  RunSetup setup_;
  TinyEngine tiny_;
  StepLog log_;
  RunFolder folder_;
  Checkpointer checkpointer_;
};

// No file can grow beyond a few bytes, as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = 100;
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit before_{};
  sighandler_t old_handler_ = SIG_DFL;
};

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("every checkpoint that is due is saved, and the last one once") {
  Saves saves({"--max_steps=5", "--checkpoint_freq=2"});
  for (int64_t step = 1; step <= 5; ++step) saves.step(step);
  saves->finish(5);
  CHECK(saves.complete() == Steps{2, 4, 5});
  CHECK(saves->saved_step() == 5);
  CHECK(saves->expected_save_seconds() > 0);
}

TEST_CASE("without --checkpoint_freq only the last step is saved, and without --save_final nothing") {
  for (const bool save_final : {true, false}) {
    Saves saves({"--max_steps=3", "--checkpoint_freq=0", fmt::format("--save_final={}", save_final)});
    for (int64_t step = 1; step <= 3; ++step) saves.step(step);
    saves->finish(3);
    CHECK(saves.complete() == (save_final ? Steps{3} : Steps{}));
  }
}

TEST_CASE("a run that stops saves its step, whether or not it was due") {
  for (const int64_t last : {3, 4}) {
    Saves saves({"--max_steps=100", "--checkpoint_freq=2"});
    for (int64_t step = 1; step < last; ++step) saves.step(step);
    saves.step(last, /*stops=*/true);
    saves->save_last(saves.position(last));
    CHECK(saves->saved_step() == last);
    CHECK(saves.complete() == (last == 3 ? Steps{2, 3} : Steps{2, 4}));
  }
}

TEST_CASE("a checkpoint that cannot be written is given up, and the last one's failure ends the run") {
  Saves saves({"--max_steps=6", "--checkpoint_freq=2"});
  saves.step(1);
  saves.step(2);
  // Waits for it.
  saves->save_last(saves.position(2));
  REQUIRE(saves.complete() == Steps{2});
  {
    const FullDisk full;
    for (int64_t step = 3; step <= 5; ++step) saves.step(step);
    saves.step(6);
    CHECK_THROWS_WITH(saves->finish(6),
                      Contains("the checkpoint of step 6 could not be saved") && Contains("that of step 2 remains"));
  }
  CHECK(saves.complete() == Steps{2});
}

}  // namespace mpzero
