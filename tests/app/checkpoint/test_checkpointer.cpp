#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "app/checkpoint/checkpointer.hpp"
#include "io/checkpoint_dir/formats.hpp"
#include "io/files/write_pace.hpp"
#include "tests/app/captured_output.hpp"
#include "tests/app/tiny_training.hpp"
#include "tests/catch.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero {
namespace {

using Catch::Contains;

constexpr int64_t kPlenty = int64_t{1} << 50;

// A checkpointer and what it needs, without the trainer: a test takes the steps.
class Saves {
 public:
  // `available_bytes`: of host memory, on this rank.
  explicit Saves(const std::vector<std::string>& flags, int64_t available_bytes = kPlenty,
                 io::FileSystem& files = io::disk())
      : setup_(run_.set_up(flags)),
        tiny_(setup_),
        log_(setup_.config, parallel::mpi(), std::nullopt),
        folder_(setup_.config, parallel::mpi(), log_),
        checkpointer_(setup_, tiny_.decoder.units(), tiny_.engine, at::kCPU, parallel::mpi(), log_, folder_, files,
                      Checkpointer::Waits(3, std::chrono::seconds(0))) {
    folder_.open();
    setup_.run = folder_.identify(std::nullopt);
    setup_.start = broadcast(parallel::mpi(), io::new_run_id());
    std::vector<std::string> warnings;
    initialize_run(setup_, tiny_.engine, parallel::mpi(), warnings);
    checkpointer_.prepare({}, available_bytes);
  }

  void step(int64_t step, bool stops = false, double seconds = 0.001) {
    checkpointer_.before_update();
    checkpointer_.after_step(position(step), seconds, stops);
  }
  RunPosition position(int64_t step) const {
    return {.step = step, .sequences_seen = 4 * step, .tokens_seen = 64 * step};
  }
  std::filesystem::path lock() const { return run_.checkpoints() / ".lock"; }
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

// A disk on which the thread that saves waits before it writes, and when it has written, until the test opens the
// gates.
class GatedDisk final : public io::testing::UnsyncedDisk {
 public:
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    if (!is_test()) may_write_.wait(false);
    return UnsyncedDisk::write(descriptor, offset, bytes, written);
  }
  int sync(int descriptor) override {
    if (!is_test() && !synced_.exchange(true)) {
      open(has_written_);
      may_end_.wait(false);
    }
    return UnsyncedDisk::sync(descriptor);
  }

  void let_write() {
    open(may_write_);
    has_written_.wait(false);
  }
  void let_end() {
    open(may_write_);
    open(may_end_);
  }

 private:
  static void open(std::atomic<bool>& gate) {
    gate = true;
    gate.notify_all();
  }
  bool is_test() const { return std::this_thread::get_id() == test_; }

  std::thread::id test_ = std::this_thread::get_id();
  std::atomic<bool> may_write_{false}, has_written_{false}, may_end_{false}, synced_{false};
};

// Opens a disk's gates in the end, so that a test that fails waits for no save.
struct OpensGates {
  explicit OpensGates(GatedDisk& gated) : disk(gated) {}
  ~OpensGates() { disk.let_end(); }
  OpensGates(const OpensGates&) = delete;
  OpensGates& operator=(const OpensGates&) = delete;
  GatedDisk& disk;
};

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("every due checkpoint is saved, and the last one only once") {
  Saves saves({"--max_steps=5", "--checkpoint_freq=2"});
  for (int64_t step = 1; step <= 5; ++step) saves.step(step);
  saves->finish(saves.position(5));
  CHECK(saves.complete() == Steps{2, 4, 5});
  CHECK(saves->saved_step() == 5);
  CHECK(saves->expected_save_seconds() > 0);
}

TEST_CASE("without --checkpoint_freq only the last step is saved, and without --save_final no step") {
  for (const bool save_final : {true, false}) {
    Saves saves({"--max_steps=3", "--checkpoint_freq=0", fmt::format("--save_final={}", save_final)});
    for (int64_t step = 1; step <= 3; ++step) saves.step(step);
    saves->finish(saves.position(3));
    CHECK(saves.complete() == (save_final ? Steps{3} : Steps{}));
  }
}

TEST_CASE("a stopped run saves its step, even if no checkpoint is due") {
  for (const int64_t last : {3, 4}) {
    Saves saves({"--max_steps=100", "--checkpoint_freq=2"});
    for (int64_t step = 1; step < last; ++step) saves.step(step);
    saves.step(last, /*stops=*/true);
    saves->save_last(saves.position(last));
    CHECK(saves->saved_step() == last);
    CHECK(saves.complete() == (last == 3 ? Steps{2, 3} : Steps{2, 4}));
  }
}

TEST_CASE("a checkpoint that cannot be written is skipped, unless it is the last one") {
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
    CHECK_THROWS_WITH(saves->finish(saves.position(6)),
                      Contains("the checkpoint for step 6") && Contains("the checkpoint for step 2 remains"));
  }
  CHECK(saves.complete() == Steps{2});
}

TEST_CASE("saving the last checkpoint succeeds once the disk has free space again") {
  class FullAtFirst final : public io::testing::UnsyncedDisk {
   public:
    int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
      if (failures_++ < 2) return ENOSPC;
      return UnsyncedDisk::write(descriptor, offset, bytes, written);
    }

   private:
    std::atomic<int> failures_ = 0;
  };
  FullAtFirst disk;
  const CapturedOutput output;
  Saves saves({"--max_steps=2", "--checkpoint_freq=1"}, kPlenty, disk);
  saves.step(1);
  saves.step(2, /*stops=*/true);
  saves->save_last(saves.position(2));
  CHECK(saves->saved_step() == 2);
  CHECK(saves.complete() == Steps{2});
}

TEST_CASE("if one rank lacks host memory, training pauses on all ranks while a checkpoint is written") {
  const parallel::MpiRuntime& mpi = parallel::mpi();
  const CapturedOutput output;
  Saves saves({"--max_steps=5", "--checkpoint_freq=2"}, mpi.rank() + 1 == mpi.world_size() ? 0 : kPlenty);
  CHECK_THAT(output.text(), Contains("training will pause") && Contains("0.0 GiB"));
  saves.step(1);
  saves.step(2);
  CHECK(saves->saved_step() == 2);
  // Since the last call.
  CHECK(saves->before_update() > 0);
  CHECK(saves->before_update() == 0);
  saves->finish(saves.position(2));
  CHECK(saves.complete() == Steps{2});
}

TEST_CASE("with memory for a copy, training continues while checkpoints are written") {
  const CapturedOutput output;
  Saves saves({"--max_steps=5", "--checkpoint_freq=2"});
  saves.step(1);
  saves.step(2);
  CHECK_FALSE(saves->saved_step());
  saves->finish(saves.position(2));
  CHECK(saves->saved_step() == 2);
  CHECK_THAT(output.text(), Contains("during training") && !Contains("training will pause"));
}

TEST_CASE("a due checkpoint waits for the previous save") {
  const CapturedOutput output;
  Saves saves({"--max_steps=3", "--checkpoint_freq=1"});
  saves.step(1);
  saves.step(2);
  CHECK(saves->saved_step() == 1);
  CHECK_THAT(output.text(), Contains("The save of step 2 is waiting for the save of step 1"));
  saves->finish(saves.position(2));
  CHECK(saves.complete() == Steps{1, 2});
}

TEST_CASE("a save in flight completes although another error ends the run") {
  const CapturedOutput output;
  Saves saves({"--max_steps=5", "--checkpoint_freq=2"});
  saves->finish_after_error();
  saves.step(1);
  saves.step(2);
  saves->finish_after_error();
  CHECK_THAT(output.text(), Contains("Waiting for the save of step 2"));
  CHECK(saves.complete() == Steps{2});
}

TEST_CASE("a run whose folder was taken over by another process stops at its next save") {
  Saves saves({"--max_steps=5", "--checkpoint_freq=2"}, /*available_bytes=*/0);
  int descriptor = -1;
  on_rank_0([&] {
    std::filesystem::remove(saves.lock());
    descriptor = ::open(saves.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    REQUIRE(::flock(descriptor, LOCK_EX | LOCK_NB) == 0);
  });
  saves.step(1);
  CHECK_THROWS_WITH(saves.step(2), Contains("has taken over"));
  if (descriptor >= 0) ::close(descriptor);
  CHECK(saves.complete().empty());
}

TEST_CASE("a save that slows down steps is throttled, except during validation") {
  constexpr int64_t kFrequency = 100'000;
  constexpr double kSlow = 10;  // seconds, of a step that takes 0.001 s without a save
  GatedDisk disk;
  Saves saves({"--max_steps=1000000", fmt::format("--checkpoint_freq={}", kFrequency)}, kPlenty, disk);
  const OpensGates opens(disk);
  CHECK_FALSE(saves->write_rate());
  for (int64_t step = kFrequency - 9; step <= kFrequency; ++step) saves.step(step);
  CHECK(saves->write_rate() == io::WritePace::kUnlimited);
  for (int64_t i = 1; i <= 6; ++i) {
    if (i == 3) disk.let_write();
    saves.step(kFrequency + i, /*stops=*/false, kSlow);
  }
  CHECK(saves->write_rate() < io::WritePace::kUnlimited);
  saves->before_validation();
  CHECK(saves->write_rate() == io::WritePace::kUnlimited);
  disk.let_end();
  saves->finish(saves.position(kFrequency));
  CHECK(saves->saved_step() == kFrequency);
}

}  // namespace mpzero
