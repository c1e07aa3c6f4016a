// The state after a power failure, a broken disk or a full disk at every single call of a save: exactly the old state
// or the new one.

#include <cerrno>
#include <cstdlib>

#include "base/error.hpp"
#include "io/checkpoint_dir/background_save.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr const char* kOld = "tiny-1steps";
constexpr const char* kNew = "tiny-2steps";
constexpr int kRanks = 2;

// Number of random variants of each crash. MPZERO_LONG_TESTS selects the nightly number.
int dice() { return std::getenv("MPZERO_LONG_TESTS") != nullptr ? 30 : 4; }

SaveJob job_for(const fs::path& dir, const std::string& tag, int64_t step, const std::vector<UnitSpec>& model, int rank,
                int world_size) {
  SaveJob job;
  job.checkpoint_dir = dir;
  job.tag = tag;
  job.progress = progress_at(step);
  for (const UnitSpec& unit : model) job.shards.push_back(shard_of(unit, rank, world_size, Split::kEven));
  job.model_type = "tiny";
  job.keep_last = 2;
  return job;
}

enum class How { kWaiting, kInBackground };

// Saves as two ranks. Returns each rank's error.
std::vector<std::string> save_on(FileSystem& files, const fs::path& dir, const std::string& tag, int64_t step,
                                 uint32_t generation, How how) {
  const auto model = small_model();
  ThreadGroup group(kRanks);
  return group.run([&](ProcessGroup& rank) {
    const SaveJob job = job_for(dir, tag, step, model, rank.rank(), kRanks);
    const SnapshotValues values(job, generation);
    if (how == How::kWaiting) {
      save_checkpoint(job, values.get(), rank, files);
      return;
    }
    BackgroundSave save(job, values.get(), rank, files);
    if (save.wait() == BackgroundSave::State::kAbandoned) throw Failure(save.error());
  });
}

bool all_succeeded(const std::vector<std::string>& errors) { return errors == std::vector<std::string>(kRanks); }

// The generation of values that a run would resume from, found as the app does: 0 if there is no checkpoint. Requires
// that `latest` names a checkpoint and that the first candidate is complete: a crash alone must not change that.
uint32_t generation_to_resume(const fs::path& dir, uint32_t newest) {
  const ResumeCandidates candidates = resume_candidates(dir, "tiny");
  if (candidates.folders.empty()) return 0;
  if (fs::exists(dir / "latest")) REQUIRE(candidates.problem_of_latest == "");
  const fs::path& folder = candidates.folders.front();
  for (uint32_t generation = newest; generation > 0; --generation) {
    if (holds_generation(folder, small_model(), generation)) return generation;
  }
  FAIL("the checkpoint holds other values");
  return 0;
}

struct Scene {
  std::string name;
  std::string tag;           // of the save
  bool has_old = true;       // an earlier checkpoint
  bool can_exchange = true;  // swaps two names atomically
  bool has_more = false;     // so many that some are pruned
};

// For saves without faults.
UnsyncedDisk fast;

// The state before the save with the fault.
void set_up(const fs::path& dir, const Scene& scene) {
  if (!scene.has_old) return;
  if (scene.has_more) {
    for (const int64_t step : {7, 8, 9}) {
      REQUIRE(all_succeeded(save_on(fast, dir, "tiny-" + std::to_string(step) + "steps", step, 1, How::kWaiting)));
    }
  }
  REQUIRE(all_succeeded(save_on(fast, dir, kOld, 1, 1, How::kWaiting)));
}

const std::vector<Scene> kScenes = {
    {"first of all", kNew, false},
    {"with another in the folder", kNew},
    {"next to others that are removed", kNew, true, true, true},
    {"replacing another", kOld},
    {"replacing another, without exchange", kOld, true, false},
};

}  // namespace

TEST_CASE("a power failure at any call of a save leaves the old or the new state") {
  const Scene scene = kScenes[static_cast<size_t>(GENERATE(0, 1, 2, 3, 4))];
  const How how = GENERATE(How::kWaiting, How::kInBackground);
  CAPTURE(scene.name, static_cast<int>(how));
  int calls = 0;
  bool saw_old = false, saw_new = false;
  for (int call = 1; calls == 0 || call <= calls + 1; ++call) {
    for (int die = 0; die < dice(); ++die) {
      const TemporaryFolder folder;
      const fs::path dir = folder / "checkpoints";
      set_up(dir, scene);
      FaultyDisk faulty(folder.path());
      if (!scene.can_exchange) faulty.forbid_exchange();
      faulty.lose_power_at(call);
      const bool saved = all_succeeded(save_on(faulty, dir, scene.tag, 2, 2, how));
      if (saved && faulty.calls() < call) calls = faulty.calls();
      // The first variants are the extremes, the others are random.
      faulty.crash(static_cast<uint32_t>(die < 3 ? die : call * 1000 + die));
      CAPTURE(call, die, saved);
      const uint32_t found = generation_to_resume(dir, 2);
      // A save that was reported as successful exists.
      if (saved) REQUIRE(found == 2);
      if (scene.has_old) REQUIRE(found >= 1);
      (found == 2 ? saw_new : saw_old) = true;
      // The next save removes the files of the failed save and succeeds.
      if (die == 0) {
        REQUIRE(all_succeeded(save_on(fast, dir, "tiny-3steps", 3, 3, how)));
        REQUIRE(generation_to_resume(dir, 3) == 3);
        for (const std::string& name : names_in(dir)) {
          REQUIRE_FALSE(name.ends_with(".replaced"));
          if (name != "latest.tmp") REQUIRE_FALSE(name.ends_with(".tmp"));
        }
      }
    }
  }
  CHECK(calls > 20);
  CHECK(saw_old);
  CHECK(saw_new);
}

TEST_CASE("a failing call ends the save on all ranks and keeps the old checkpoint, and the next save succeeds") {
  const Scene scene = kScenes[static_cast<size_t>(GENERATE(1, 2, 3, 4))];
  const How how = GENERATE(How::kWaiting, How::kInBackground);
  const bool persists = GENERATE(false, true);
  const int error = persists ? ENOSPC : EIO;
  CAPTURE(scene.name, static_cast<int>(how), error, persists);
  bool disturbed = true;
  int given_up = 0;
  for (int call = 1; disturbed; ++call) {
    const TemporaryFolder folder;
    const fs::path dir = folder / "checkpoints";
    set_up(dir, scene);
    FaultyDisk faulty(folder.path());
    if (!scene.can_exchange) faulty.forbid_exchange();
    faulty.fail_at(call, error, persists);
    const std::vector<std::string> errors = save_on(faulty, dir, scene.tag, 2, 2, how);
    disturbed = faulty.calls() >= call;
    CAPTURE(call, errors[0]);
    // All ranks throw the same sentence, which names the reason.
    REQUIRE(errors[0] == errors[1]);
    const uint32_t found = generation_to_resume(dir, 2);
    if (all_succeeded(errors)) {
      // The failure happened after the checkpoint was named, or where it does no harm.
      REQUIRE(found == 2);
    } else {
      REQUIRE_THAT(errors[0], Contains(std::strerror(error)) && Contains(folder.path().string()));
      REQUIRE(errors[0].find('\n') == std::string::npos);
      if (error == ENOSPC) REQUIRE_THAT(errors[0], Contains("free some space"));
      REQUIRE(found >= 1);
      ++given_up;
    }
    REQUIRE(all_succeeded(save_on(fast, dir, "tiny-3steps", 3, 3, how)));
    REQUIRE(generation_to_resume(dir, 3) == 3);
  }
  CHECK(given_up > 10);
}

TEST_CASE("all data is written although the disk writes only half of each request") {
  const TemporaryFolder folder;
  FaultyDisk halves(folder.path());
  halves.write_by_halves();
  REQUIRE(all_succeeded(save_on(halves, folder / "checkpoints", kNew, 2, 2, How::kInBackground)));
  CHECK(generation_to_resume(folder / "checkpoints", 2) == 2);
}

TEST_CASE("the model of the disk detects a missing sync") {
  // Otherwise the tests above would prove nothing.
  int lost = 0;
  for (uint32_t seed = 3; seed < 23; ++seed) {
    const TemporaryFolder folder;
    FaultyDisk faulty(folder.path());
    UnsyncedDisk careless(faulty);
    REQUIRE(all_succeeded(save_on(careless, folder / "checkpoints", kNew, 2, 2, How::kWaiting)));
    faulty.crash(seed);
    const std::string problem = message_of([&] {
      const ResumeCandidates candidates = resume_candidates(folder / "checkpoints", "tiny");
      if (candidates.folders.empty()) throw Failure("gone");
      open_hdf5(candidates.folders.front())->verify();
    });
    if (!problem.empty()) ++lost;
  }
  CHECK(lost > 10);
}

}  // namespace mpzero::io
