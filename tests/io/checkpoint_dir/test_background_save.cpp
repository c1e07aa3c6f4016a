#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "io/checkpoint_dir/background_save.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
using State = BackgroundSave::State;
namespace {

constexpr const char* kTag = "tiny-5steps";

SaveJob job_for(const fs::path& dir, const std::vector<UnitSpec>& model, const ProcessGroup& rank) {
  SaveJob job;
  job.checkpoint_dir = dir;
  job.tag = kTag;
  job.progress = progress_at(5);
  for (const UnitSpec& unit : model) {
    job.shards.push_back(shard_of(unit, rank.rank(), rank.world_size(), Split::kEven));
  }
  job.model_type = "tiny";
  return job;
}

// Values that rank `held` does not provide until it is released.
class HeldValues {
 public:
  HeldValues(const SaveJob& job, uint32_t generation, std::atomic<bool>* held)
      : values_(job, generation), held_(held) {}
  ShardValues get() const {
    return {.fetch = [this, values = values_.get()](size_t i, StateKind kind) -> std::span<const float> {
              if (held_ != nullptr) held_->wait(true);
              return values.fetch(i, kind);
            },
            .all_stay = true};
  }

 private:
  SnapshotValues values_;
  std::atomic<bool>* held_;
};

}  // namespace

TEST_CASE("a save runs in the background, all ranks see the same state in each poll, and nothing is published early") {
  const auto model = small_model();
  const TemporaryFolder folder;
  const int slow = GENERATE(0, 1, 2);
  std::atomic<bool> held{true};
  ThreadGroup group(3);
  std::vector<std::vector<State>> seen(3);
  const auto errors = group.run([&](ProcessGroup& rank) {
    const SaveJob job = job_for(folder.path(), model, rank);
    const HeldValues values(job, 1, rank.rank() == slow ? &held : nullptr);
    std::atomic<bool> done{false};
    ShardValues given = values.get();
    given.done = [&] {
      done = true;
      done.notify_all();
    };
    BackgroundSave save(job, given, rank);
    std::vector<State>& states = seen[static_cast<size_t>(rank.rank())];
    for (int poll = 0; poll < 20; ++poll) states.push_back(save.poll());
    if (states.back() != State::kWriting) throw Failure("went on without the slow rank");
    if (fs::exists(folder / kTag) || fs::exists(folder / "latest")) throw Failure("named early");
    if (rank.rank() == slow && done) throw Failure("let go of what is still to be written");
    // The other ranks do not need to be polled for that.
    if (rank.rank() != slow) done.wait(false);
    rank.barrier();
    if (rank.rank() == slow) {
      held = false;
      held.notify_all();
    }
    while (save.in_flight()) states.push_back(save.poll());
    if (!save.error().empty()) throw Failure(save.error());
    if (save.writing_seconds() <= 0) throw Failure("no time");
    if (rank.rank() == 0 && save.published().bytes <= 0) throw Failure("no size");
  });
  REQUIRE(errors == std::vector<std::string>(3));
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] == seen[2]);
  CHECK(seen[0].back() == State::kSaved);
  CHECK(holds_generation(*latest_checkpoint(folder.path()), model, 1));
}

TEST_CASE("a rank that cannot write ends the save on all ranks with the same error, and the folder stays empty") {
  const auto model = small_model();
  const TemporaryFolder folder;
  const int failing = GENERATE(0, 1, 2);
  ThreadGroup group(3);
  std::vector<std::string> reported(3);
  const auto errors = group.run([&](ProcessGroup& rank) {
    const SaveJob job = job_for(folder.path(), model, rank);
    const HeldValues values(job, 1, nullptr);
    ShardValues given = values.get();
    if (rank.rank() == failing) {
      given.fetch = [](size_t, StateKind) -> std::span<const float> { throw UserError("the disk is full; free some"); };
    }
    std::atomic<int> done{0};
    given.done = [&] { ++done; };
    BackgroundSave save(job, given, rank);
    if (save.wait() != State::kAbandoned) throw Failure("was not abandoned");
    if (done != 1) throw Failure("the values were not released");
    reported[static_cast<size_t>(rank.rank())] = save.error();
  });
  REQUIRE(errors == std::vector<std::string>(3));
  for (const std::string& error : reported)
    CHECK(error == fmt::format("rank {}: the disk is full; free some", failing));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("writing threads and their children have a lower priority than training and stay on their cores") {
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  int core = 0;
  while (!CPU_ISSET(static_cast<size_t>(core), &all)) ++core;
  const int niceness = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
  for (const bool bound : {true, false}) {
    std::atomic<int> as_expected{0};
    const auto look = [&] {
      cpu_set_t mine;
      if (::sched_getaffinity(0, sizeof mine, &mine) != 0) return;
      const bool kept =
          bound ? CPU_COUNT(&mine) == 1 && CPU_ISSET(static_cast<size_t>(core), &mine) : CPU_EQUAL(&mine, &all) != 0;
      if (kept && ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())) == std::min(niceness + 10, 19)) {
        ++as_expected;
      }
    };
    {
      const BackgroundTask task(
          [&](const std::stop_token&) {
            look();
            std::jthread helper(look);
          },
          bound ? std::vector<int>{core} : std::vector<int>{});
      while (!task.ended()) std::this_thread::yield();
    }
    CHECK(as_expected == 2);
  }
}

TEST_CASE("a throttled save continues at full speed once waited for, and reports both times") {
  const auto model = small_model();
  const TemporaryFolder folder;
  SingleProcess alone;
  const SaveJob job = job_for(folder.path(), model, alone);
  std::atomic<bool> held{true};
  const HeldValues values(job, 1, &held);
  BackgroundSave save(job, values.get(), alone);
  // At this rate the save would take thousands of years.
  save.pace().set_rate(1e-9);
  held = false;
  held.notify_all();
  for (int poll = 0; poll < 20; ++poll) {
    REQUIRE(save.poll() == State::kWriting);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(save.wait() == State::kSaved);
  CHECK(save.pace().bytes() > 0);
  CHECK(save.unhindered_seconds() > 0);
  CHECK(save.unhindered_seconds() <= save.writing_seconds());
  CHECK(holds_generation(*latest_checkpoint(folder.path()), model, 1));
}

TEST_CASE("all ranks throw if a folder cannot be created") {
  const auto model = small_model();
  const TemporaryFolder folder;
  write_file(folder / "file", "x");
  ThreadGroup group(2);
  for (const std::string& error : group.run([&](ProcessGroup& rank) {
         const SaveJob job = job_for(folder / "file", model, rank);
         const HeldValues values(job, 1, nullptr);
         const BackgroundSave save(job, values.get(), rank);
       })) {
    CHECK_THAT(error, Contains("Not a directory"));
  }
}

TEST_CASE("a save whose owner is destroyed is abandoned without waiting for other ranks") {
  const auto model = small_model();
  const TemporaryFolder folder;
  ThreadGroup group(2);
  const auto errors = group.run([&](ProcessGroup& rank) {
    const SaveJob job = job_for(folder.path(), model, rank);
    const HeldValues values(job, 1, nullptr);
    const BackgroundSave save(job, values.get(), rank);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(latest_checkpoint(folder.path()) == std::nullopt);
  // The next save removes the files of the interrupted save.
  save(folder.path(), "tiny-6steps", progress_at(6), model, 1);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "tiny-6steps"});
}

TEST_CASE("each save is newer than all earlier saves, even after a damaged or unreadable checkpoint") {
  const auto model = small_model();
  const TemporaryFolder folder;
  CHECK(resume_candidates(folder.path(), "tiny").folders.empty());
  CHECK(resume_candidates(folder / "absent", "tiny").folders.empty());
  CHECK(next_generation(folder / "absent") == 1);
  for (const int step : {50, 3, 4}) {
    save(folder.path(), fmt::format("tiny-{}steps", step), progress_at(step), model, 2);
  }
  save(folder.path(), "other-9steps", progress_at(9), model, 1);
  write_file(folder / "latest", "tiny-4steps\n");
  CHECK(next_generation(folder.path()) == 5);
  const auto tags = [&](const std::string& model_type) {
    std::vector<std::string> found;
    for (const CatalogEntry& entry : list_checkpoints(folder.path(), model_type)) found.push_back(entry.tag);
    return found;
  };
  CHECK(tags("") == std::vector<std::string>{"other-9steps", "tiny-4steps", "tiny-3steps", "tiny-50steps"});
  CHECK(tags("tiny") == std::vector<std::string>{"tiny-4steps", "tiny-3steps", "tiny-50steps"});

  const auto candidates = [&] {
    const ResumeCandidates found = resume_candidates(folder.path(), "tiny");
    std::vector<std::string> names;
    for (const fs::path& path : found.folders) names.push_back(path.filename());
    return std::pair(names, found.problem_of_latest);
  };
  using Names = std::vector<std::string>;
  CHECK(candidates() == std::pair(Names{"tiny-4steps", "tiny-3steps"}, std::string()));
  write_file(folder / "latest", "tiny-50steps\n");
  CHECK(candidates() == std::pair(Names{"tiny-50steps", "tiny-4steps", "tiny-3steps"}, std::string()));
  write_file(folder / "latest", "tiny-51steps\n");
  CHECK(candidates().first == Names{"tiny-4steps", "tiny-3steps"});
  CHECK_THAT(candidates().second, Contains("tiny-51steps"));
  fs::remove(folder / "latest");
  CHECK_THAT(candidates().second, Contains("no 'latest' file"));

  // Pruning counts only complete checkpoints, and never removes the one that latest names.
  write_file(folder / "latest", "tiny-50steps\n");
  fs::resize_file(folder / "tiny-4steps" / "mp_rank_00_model_states.h5", 100);
  const auto doomed = [&](int64_t keep_last) {
    Names names;
    for (const fs::path& path : checkpoints_to_prune(folder.path(), list_checkpoints(folder.path(), "tiny"), keep_last,
                                                     [](const CatalogEntry&) { return true; })) {
      names.push_back(path.filename());
    }
    return names;
  };
  CHECK(doomed(1) == Names{});  // 4 is damaged, 3 is good, 50 is the latest
  write_file(folder / "latest", "tiny-3steps\n");
  CHECK(doomed(1) == Names{"tiny-50steps"});
  CHECK(doomed(2) == Names{});
  CHECK(doomed(0) == Names{});
}

}  // namespace mpzero::io
