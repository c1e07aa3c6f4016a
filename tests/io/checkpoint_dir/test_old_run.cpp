// Several runs in one folder: whose checkpoints a run resumes from, replaces and removes, and how they are moved aside.

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/checkpoint_dir/catalog.hpp"
#include "io/checkpoint_dir/folder.hpp"
#include "io/checkpoint_dir/old_run.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

using Names = std::vector<std::string>;

const std::string kNone;

// Saves "tiny-<step>steps" as one rank of this run. Returns the error.
std::string save_as(const fs::path& dir, const std::string& run_id, int64_t step, int64_t keep_last = 0,
                    const std::string& init_from = "", const std::string& init_from_hash = "") {
  const auto model = small_model();
  ThreadGroup group(1);
  return group
      .run([&](ProcessGroup& rank) {
        SaveJob job = job_of(dir, run_id, step, model);
        job.keep_last = keep_last;
        job.run = {.id = run_id, .init_from = init_from, .init_from_hash = init_from_hash};
        save_checkpoint(job, SnapshotValues(job, 1).get(), rank);
      })
      .front();
}

struct Found {
  Names folders;
  Names left_out;
  std::string run_id;
};

Found candidates_in(const fs::path& dir) {
  const ResumeCandidates candidates = resume_candidates(dir, "tiny");
  Found found{.folders = {}, .left_out = candidates.left_out, .run_id = candidates.run.id};
  for (const fs::path& folder : candidates.folders) found.folders.push_back(folder.filename());
  return found;
}

// Has no effect from one call on, like the disk of a process that is killed there.
class DyingDisk final : public FileSystem {
 public:
  explicit DyingDisk(int last_call) : left_(last_call) {}
  bool died() const { return left_ < 0; }

  int open(const fs::path& path, int flags, int& descriptor) override {
    return dies() ? EIO : disk().open(path, flags, descriptor);
  }
  void close(int descriptor) noexcept override { disk().close(descriptor); }
  int write(int descriptor, int64_t offset, std::span<const std::byte> bytes, size_t& written) override {
    return dies() ? EIO : disk().write(descriptor, offset, bytes, written);
  }
  int reserve(int descriptor, int64_t size) override { return dies() ? EIO : disk().reserve(descriptor, size); }
  int resize(int descriptor, int64_t size) override { return dies() ? EIO : disk().resize(descriptor, size); }
  int sync(int) override { return dies() ? EIO : 0; }
  int rename(const fs::path& from, const fs::path& to) override { return dies() ? EIO : disk().rename(from, to); }
  int exchange(const fs::path& a, const fs::path& b) override { return dies() ? EIO : disk().exchange(a, b); }
  int make_folder(const fs::path& folder) override { return dies() ? EIO : disk().make_folder(folder); }
  int remove_file(const fs::path& path) override { return dies() ? EIO : disk().remove_file(path); }
  int remove_folder(const fs::path& folder) override { return dies() ? EIO : disk().remove_folder(folder); }

 private:
  bool dies() { return left_ < 0 || --left_ < 0; }
  int left_;
};

}  // namespace

TEST_CASE("a run's id is random, and a manifest records the run and its initial weights") {
  CHECK(is_run_id(new_run_id()));
  CHECK(new_run_id() != new_run_id());
  for (const std::string wrong : {"", "00000000aaaaaaa", "00000000aaaaaaaaa", "00000000AAAAAAAA", "00000000aaaaaaa/"}) {
    CHECK(!is_run_id(wrong));
  }
  const TemporaryFolder folder;
  REQUIRE(save_as(folder.path(), kOurs, 1, 0, "/weights") == "");
  CHECK(run_of(folder / "tiny-1steps").id == kOurs);
  CHECK(run_of(folder / "tiny-1steps").init_from == "/weights");
  CHECK(run_of(folder / "tiny-1steps").init_from_hash == "");
  REQUIRE(save_as(folder.path(), kOurs, 3, 0, "/weights", "00112233445566ff") == "");
  CHECK(run_of(folder / "tiny-3steps").init_from_hash == "00112233445566ff");
  REQUIRE(save_as(folder.path(), kNone, 2) == "");
  CHECK(run_of(folder / "tiny-2steps").id == "");
  CHECK_THROWS_AS(run_of(folder / "absent"), UserError);

  // The id is used in messages.
  const fs::path manifest = folder / "tiny-1steps/manifest.json";
  nlohmann::json content = nlohmann::json::parse(read_file(manifest))["content"];
  const auto rewrite = [&] {
    const std::string text = content.dump();
    write_file(manifest, fmt::format("{{\"content\":{},\"content_xxh3_64\":\"{}\"}}", text,
                                     to_hex(checksum(std::as_bytes(std::span(text))))));
  };
  content["run"]["id"] = "../../etc";
  rewrite();
  CHECK_THAT(message_of([&] { run_of(folder / "tiny-1steps"); }), Contains("manifest.json is damaged"));
  content["run"]["id"] = kOurs;
  content["run"]["init_from_xxh3_64"] = "../../etc";
  rewrite();
  CHECK_THAT(message_of([&] { run_of(folder / "tiny-1steps"); }), Contains("manifest.json is damaged"));
}

TEST_CASE("a run resumes only from its own checkpoints, and the others are reported") {
  const TemporaryFolder folder;
  for (const int step : {3, 9}) REQUIRE(save_as(folder.path(), kTheirs, step) == "");
  for (const int step : {4, 5}) REQUIRE(save_as(folder.path(), kOurs, step) == "");
  Found found = candidates_in(folder.path());
  CHECK(found.folders == Names{"tiny-5steps", "tiny-4steps"});
  CHECK(found.run_id == kOurs);
  CHECK(found.left_out == Names{"tiny-9steps (run 11111111)", "tiny-3steps (run 11111111)"});
  // If `latest` or its manifest is lost, it is the run that saved last.
  write_file(folder / "tiny-5steps/manifest.json", "{}");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-5steps", "tiny-4steps"});
  fs::remove(folder / "tiny-5steps/manifest.json");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-5steps", "tiny-4steps"});
  fs::remove(folder / "latest");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-4steps", "tiny-5steps"});
  // A user who points `latest` at the other run means that run.
  write_file(folder / "latest", "tiny-9steps\n");
  found = candidates_in(folder.path());
  CHECK(found.folders == Names{"tiny-9steps", "tiny-3steps", "tiny-5steps"});
  CHECK(found.left_out == Names{"tiny-4steps (run 00000000)"});
}

TEST_CASE("if the run of the newest checkpoint is unknown, the newest checkpoint of each run is reported") {
  const TemporaryFolder folder;
  REQUIRE(save_as(folder.path(), kNone, 1) == "");
  for (const int step : {3, 9}) REQUIRE(save_as(folder.path(), kTheirs, step) == "");
  const auto runs_there = [&] {
    const ResumeCandidates candidates = resume_candidates(folder.path(), "tiny");
    Names tags;
    for (const CatalogEntry& entry : candidates.newest_of_runs) tags.push_back(entry.tag);
    return std::pair(candidates.problem_of_run, tags);
  };
  CHECK(runs_there() == std::pair(std::string(), Names{}));
  write_file(folder / "tiny-9steps/manifest.json", "{}");
  CHECK_THAT(runs_there().first, Contains("tiny-9steps/manifest.json is damaged"));
  // An older checkpoint without an id belongs to the run.
  CHECK(runs_there().second == Names{"tiny-3steps"});
  for (const int step : {4, 5, 6}) REQUIRE(save_as(folder.path(), kOurs, step) == "");
  CHECK(runs_there() == std::pair(std::string(), Names{}));
  write_file(folder / "tiny-6steps/manifest.json", "{}");
  CHECK(runs_there().second == Names{"tiny-5steps", "tiny-3steps"});
  REQUIRE(save_as(folder.path(), kNone, 7) == "");
  write_file(folder / "latest", "tiny-6steps\n");
  CHECK(runs_there().second == Names{"tiny-7steps", "tiny-5steps", "tiny-3steps"});
}

TEST_CASE("a run started by an older mpzero falls back to checkpoints without an id") {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kNone, step) == "");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-2steps", "tiny-1steps"});
  CHECK(candidates_in(folder.path()).run_id == "");
  for (const int step : {3, 4}) REQUIRE(save_as(folder.path(), kOurs, step) == "");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-4steps", "tiny-3steps", "tiny-2steps", "tiny-1steps"});
  CHECK(candidates_in(folder.path()).run_id == kOurs);
  // Later checkpoints without an id do not belong to the run, nor the run to them.
  REQUIRE(save_as(folder.path(), kNone, 5) == "");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-5steps", "tiny-2steps", "tiny-1steps"});
  write_file(folder / "latest", "tiny-4steps\n");
  CHECK(candidates_in(folder.path()).folders == Names{"tiny-4steps", "tiny-3steps", "tiny-2steps", "tiny-1steps"});
}

TEST_CASE("a run that resumed from an earlier step does not resume from the later steps that it abandoned") {
  const std::string run_id = GENERATE(kOurs, kNone);
  const TemporaryFolder folder;
  for (const int step : {10, 20, 30, 15}) REQUIRE(save_as(folder.path(), run_id, step) == "");
  const Found found = candidates_in(folder.path());
  CHECK(found.folders == Names{"tiny-15steps", "tiny-10steps"});
  REQUIRE(found.left_out.size() == 2);
  CHECK(found.left_out[0] == "tiny-30steps (the run has since returned to an earlier step)");
}

TEST_CASE("a run keeps its own newest checkpoints and does not remove those of other runs") {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kTheirs, step) == "");
  REQUIRE(save_as(folder.path(), kNone, 3) == "");
  for (const int step : {4, 5, 6}) REQUIRE(save_as(folder.path(), kOurs, step, /*keep_last=*/2) == "");
  CHECK(names_in(folder.path()) ==
        Names{"latest", "tiny-1steps", "tiny-2steps", "tiny-3steps", "tiny-5steps", "tiny-6steps"});
}

TEST_CASE("a save never replaces another run's checkpoint") {
  const TemporaryFolder folder;
  REQUIRE(save_as(folder.path(), kTheirs, 1) == "");
  CHECK_THAT(save_as(folder.path(), kOurs, 1),
             Contains("tiny-1steps is a checkpoint of another run (run 11111111; this is run 00000000)"));
  CHECK(run_of(folder / "tiny-1steps").id == kTheirs);
  CHECK(names_in(folder.path()) == Names{"latest", "tiny-1steps"});
  CHECK(save_as(folder.path(), kTheirs, 1) == "");
  // A damaged checkpoint is of no use to any run.
  write_file(folder / "tiny-1steps/manifest.json", "{}");
  CHECK(save_as(folder.path(), kOurs, 1) == "");
}

TEST_CASE("moved files form a valid checkpoint folder that is never mistaken for a checkpoint") {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kTheirs, step) == "");
  write_file(folder / "notes.txt", "mine");
  CHECK(next_old_name(folder.path()) == "old-1");
  CHECK(move_aside(folder.path(), {"latest", "tiny-1steps", "tiny-2steps"}) == folder / "old-1");
  CHECK(names_in(folder.path()) == Names{"notes.txt", "old-1"});
  CHECK(names_in(folder / "old-1") == Names{"latest", "tiny-1steps", "tiny-2steps"});
  CHECK(list_checkpoints(folder.path()).empty());
  CHECK(resume_candidates(folder.path(), "tiny").folders.empty());
  CHECK(latest_checkpoint(folder.path()) == std::nullopt);
  CHECK(clean_up(folder.path()).removed.empty());
  CHECK(find_checkpoint(folder / "old-1") == folder / "old-1/tiny-2steps");
  CHECK(holds_generation(folder / "old-1/tiny-2steps", small_model(), 1));

  REQUIRE(save_as(folder.path(), kOurs, 1, /*keep_last=*/1) == "");
  CHECK(move_aside(folder.path(), {"latest", "tiny-1steps"}) == folder / "old-2");
  CHECK(names_in(folder / "old-1").size() == 3);
  CHECK(finish_moving(folder.path()).empty());
}

TEST_CASE(
    "a file of any name is moved, except the name that the move itself uses, which is refused before any change") {
  const TemporaryFolder folder;
  for (const std::string name : {"names.txt", "latest", "metrics.jsonl"}) write_file(folder / name, name);
  CHECK(move_aside(folder.path(), {"latest", "names.txt", "metrics.jsonl"}) == folder / "old-1");
  CHECK(names_in(folder.path()) == Names{"old-1"});
  CHECK(names_in(folder / "old-1") == Names{"latest", "metrics.jsonl", "names.txt"});
  CHECK(read_file(folder / "old-1/names.txt") == "names.txt");

  for (const std::string name : {".moving", ".moving.tmp"}) {
    write_file(folder / name, "mine");
    CHECK_THAT(message_of([&] { move_aside(folder.path(), {name}); }),
               Contains((folder / name).string()) && Contains("--overwrite") && Contains("rename it"));
    CHECK(read_file(folder / name) == "mine");
  }
  CHECK(names_in(folder.path()) == Names{".moving", ".moving.tmp", "old-1"});
}

TEST_CASE("a move killed at any call loses nothing, and the next start completes it") {
  const Names names = {"latest", "tiny-1steps", "tiny-2steps"};
  bool saw_all_stay = false, saw_all_moved = false;
  for (int call = 0;; ++call) {
    const TemporaryFolder folder;
    for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kTheirs, step) == "");
    write_file(folder / "notes.txt", "mine");
    DyingDisk dying(call);
    const std::string error = message_of([&] { move_aside(folder.path(), names, dying); });
    CAPTURE(call, error);
    REQUIRE(error.empty() == !dying.died());
    // Killed repeatedly on the way.
    for (int again = 0; again < 4; ++again) {
      DyingDisk dying_again(again);
      message_of([&] { finish_moving(folder.path(), dying_again); });
    }
    finish_moving(folder.path());
    const bool stay = fs::exists(folder / "latest");
    (stay ? saw_all_stay : saw_all_moved) = true;
    Names left = {"notes.txt"};
    if (stay) {
      left.insert(left.begin(), names.begin(), names.end());
      std::sort(left.begin(), left.end());
    } else {
      left.emplace_back("old-1");
      REQUIRE(names_in(folder / "old-1") == names);
    }
    REQUIRE(names_in(folder.path()) == left);
    REQUIRE(holds_generation((stay ? folder.path() : folder / "old-1") / "tiny-2steps", small_model(), 1));
    if (!dying.died()) break;
  }
  CHECK(saw_all_stay);
  CHECK(saw_all_moved);
}

TEST_CASE("a manipulated list of names moves nothing out of the folder") {
  const TemporaryFolder folder;
  const fs::path dir = folder / "checkpoints";
  fs::create_directories(dir / "old-1.moving");
  write_file(folder / "secret", "mine");
  for (const std::string name : {"../secret", "..", ".", "", "a/b"}) {
    write_file(dir / "old-1.moving/.moving", name + "\n");
    CHECK_THAT(message_of([&] { finish_moving(dir); }), Contains("/.moving is damaged: line 1"));
  }
  CHECK(names_in(folder.path()) == Names{"checkpoints", "secret"});
  // Nor does it replace existing files.
  write_file(dir / "old-1.moving/.moving", "loss.png\n");
  write_file(dir / "old-1.moving/loss.png", "old");
  write_file(dir / "loss.png", "new");
  CHECK_THAT(message_of([&] { finish_moving(dir); }), Contains("both") && Contains("move one of them elsewhere"));
  CHECK(read_file(dir / "old-1.moving/loss.png") == "old");
}

}  // namespace mpzero::io
