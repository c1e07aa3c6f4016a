// Several runs in one folder without locks, and folders of crashed saves that cannot be removed.

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "base/error.hpp"
#include "io/checkpoint_dir/save.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"
#include "tests/skip.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

using Names = std::vector<std::string>;

// Lets a test run code at a call.
class WatchedDisk : public UnsyncedDisk {
 public:
  int remove_file(const fs::path& path) override {
    return path.string().find(stays) != std::string::npos ? EPERM : UnsyncedDisk::remove_file(path);
  }
  int exchange(const fs::path& a, const fs::path& b) override {
    if (before_exchange) std::exchange(before_exchange, nullptr)();
    return can_exchange ? UnsyncedDisk::exchange(a, b) : EINVAL;
  }
  int rename(const fs::path& from, const fs::path& to) override {
    if (before_rename) std::exchange(before_rename, nullptr)();
    return UnsyncedDisk::rename(from, to);
  }

  std::string stays = "\n";  // paths that contain this cannot be removed; no path here has a line break
  std::function<void()> before_exchange;
  std::function<void()> before_rename;
  bool can_exchange = true;
};

// Saves as the only rank. Returns the error.
std::string save_as(const fs::path& dir, const std::string& run_id, int64_t step, uint32_t values, FileSystem& files,
                    int64_t keep_last = 0) {
  const auto model = small_model();
  SaveJob job = job_of(dir, run_id, step, model);
  job.keep_last = keep_last;
  SingleProcess alone;
  return message_of([&] { save_checkpoint(job, SnapshotValues(job, values).get(), alone, files); });
}

void make_leftover(const fs::path& folder) {
  fs::create_directories(folder);
  write_file(folder / "stubborn", "x");
}

}  // namespace

TEST_CASE("a folder of a crashed save that cannot be removed does not stop a save with another tag") {
  const TemporaryFolder folder;
  WatchedDisk files;
  files.stays = "stubborn";
  for (const char* name : {"tiny-7steps.tmp", "tiny-8steps.replaced", "tiny-8steps"}) make_leftover(folder / name);
  CHECK(save_as(folder.path(), kOurs, 1, 1, files) == "");
  CHECK(save_as(folder.path(), kOurs, 2, 2, files) == "");
  CHECK(holds_generation(folder / "tiny-2steps", small_model(), 2));
  CHECK(fs::exists(folder / "tiny-7steps.tmp/stubborn"));
}

TEST_CASE("a stuck temporary file of `latest` does not stop a save") {
  const TemporaryFolder folder;
  // A folder cannot be removed as a file, nor opened for writing.
  fs::create_directory(folder / "latest.tmp");
  replace_text_file(folder / "latest", "tiny-1steps\n");
  CHECK(read_file(folder / "latest") == "tiny-1steps\n");
  replace_text_file(folder / "latest", "tiny-2steps\n");
  CHECK(read_file(folder / "latest") == "tiny-2steps\n");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "latest.tmp"});
}

TEST_CASE("two attempts of one run write to separate folders") {
  const TemporaryFolder folder;
  SingleProcess alone;
  SaveJob first{.checkpoint_dir = folder.path(), .tag = "tiny-1steps", .progress = {}, .shards = {}, .model_type = {}};
  first.run.id = "0123456789abcdef";
  SaveJob second = first;
  first.start = "1111111111111111";
  second.start = "2222222222222222";
  begin_save(first, alone);
  write_file(folder / "tiny-1steps.11111111.tmp/shard", "first");
  begin_save(second, alone);
  CHECK(read_file(folder / "tiny-1steps.11111111.tmp/shard") == "first");
  write_file(folder / "tiny-1steps.22222222.tmp/shard", "second");
  discard_save(first);
  CHECK(read_file(folder / "tiny-1steps.22222222.tmp/shard") == "second");
}

TEST_CASE("another run's leftover with the same tag does not stop a save, and an own leftover that does is reported") {
  const TemporaryFolder folder;
  WatchedDisk files;
  files.stays = "stubborn";
  make_leftover(folder / "tiny-1steps.11111111.tmp");
  make_leftover(folder / "tiny-1steps.tmp");
  CHECK(save_as(folder.path(), kOurs, 1, 1, files) == "");
  make_leftover(folder / "tiny-2steps.00000000.tmp");
  CHECK_THAT(save_as(folder.path(), kOurs, 2, 2, files),
             Contains("tiny-2steps.00000000.tmp/stubborn") && Contains("Operation not permitted"));
}

TEST_CASE("an old checkpoint that cannot be removed does not prevent the pruning of others") {
  const TemporaryFolder folder;
  WatchedDisk files;
  for (const int step : {1, 2, 3}) REQUIRE(save_as(folder.path(), kOurs, step, 1, files) == "");
  write_file(folder / "tiny-2steps/stubborn", "x");
  files.stays = "stubborn";
  CHECK(save_as(folder.path(), kOurs, 4, 1, files, /*keep_last=*/1) == "");
  const Names names = names_in(folder.path());
  CHECK(std::count(names.begin(), names.end(), "tiny-1steps") == 0);
  CHECK(std::count(names.begin(), names.end(), "tiny-3steps") == 0);
  CHECK(save_as(folder.path(), kOurs, 5, 1, files, /*keep_last=*/1) == "");
}

TEST_CASE("an immutable file does not stop a save", "[immutable]") {
  const TemporaryFolder folder;
  const fs::path file = folder / "tiny-7steps.tmp/kept";
  fs::create_directories(file.parent_path());
  write_file(file, "x");
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  int flags = FS_IMMUTABLE_FL;
  if (::ioctl(descriptor, FS_IOC_SETFLAGS, &flags) != 0) {
    ::close(descriptor);
    skip_test("root and a file system that keeps immutable files");
    return;
  }
  CHECK(save_as(folder.path(), kOurs, 1, 1, disk()) == "");
  flags = 0;
  CHECK(::ioctl(descriptor, FS_IOC_SETFLAGS, &flags) == 0);
  ::close(descriptor);
}

// Every order of the steps of two runs that save the same tag at the same time.
TEST_CASE("two runs without locks write to separate folders") {
  // The steps of one run are begin, write, publish. `order` is the run of each next step.
  std::string order = "aaabbb";
  int orders = 0;
  do {
    CAPTURE(order);
    ++orders;
    const TemporaryFolder folder;
    const auto model = small_model();
    UnsyncedDisk files;
    SingleProcess alone;
    struct Run {
      SaveJob job;
      uint32_t values;
      int next = 0;
      std::string shard_file{};
      std::string error{};
    };
    Run runs[] = {{job_of(folder.path(), kOurs, 1, model), 1}, {job_of(folder.path(), kTheirs, 1, model), 2}};
    for (const char who : order) {
      Run& run = runs[who - 'a'];
      if (!run.error.empty()) continue;
      run.error = message_of([&] {
        switch (run.next++) {
          case 0:
            begin_save(run.job, alone, files);
            break;
          case 1:
            run.shard_file = write_shards(run.job, 0, SnapshotValues(run.job, run.values).get(), {.files = &files});
            break;
          default:
            publish_save(run.job, {run.shard_file}, files);
        }
      });
    }
    // One of the two is saved completely, and the other one reported an error.
    const Run& first = runs[0].error.empty() ? runs[0] : runs[1];
    const Run& second = runs[0].error.empty() ? runs[1] : runs[0];
    CHECK(first.error == "");
    CHECK_THAT(second.error, Contains("is a checkpoint of another run"));
    CHECK(holds_generation(folder / "tiny-1steps", model, first.values));
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 20);
}

TEST_CASE("a checkpoint of another run that appears at the last moment is restored") {
  const TemporaryFolder folder;
  WatchedDisk files;
  UnsyncedDisk theirs;
  REQUIRE(save_as(folder.path(), kOurs, 1, 1, files) == "");
  const auto interfere = [&] {
    fs::remove_all(folder / "tiny-1steps");
    REQUIRE(save_as(folder.path(), kTheirs, 1, 9, theirs) == "");
  };
  SECTION("where two folders are swapped atomically") { files.before_exchange = interfere; }
  SECTION("where they are renamed one after the other") {
    files.can_exchange = false;
    files.before_rename = interfere;
  }
  CHECK_THAT(save_as(folder.path(), kOurs, 1, 2, files), Contains("is a checkpoint of another run"));
  CHECK(holds_generation(folder / "tiny-1steps", small_model(), 9));
  CHECK(names_in(folder.path()) == Names{"latest", "tiny-1steps"});
}

TEST_CASE("a save that detects a takeover of the folder changes nothing") {
  const TemporaryFolder folder;
  UnsyncedDisk files;
  REQUIRE(save_as(folder.path(), kOurs, 1, 1, files) == "");
  const auto model = small_model();
  SaveJob job = job_of(folder.path(), kOurs, 1, model);
  SingleProcess alone;
  // Before anything is written, and before the last step.
  const int failing = GENERATE(1, 2, 3);
  int asked = 0;
  job.check_owner = [&] {
    if (++asked == failing) throw Failure("taken over");
  };
  CHECK(message_of([&] { save_checkpoint(job, SnapshotValues(job, 2).get(), alone, files); }) == "taken over");
  CHECK(holds_generation(folder / "tiny-1steps", model, 1));
  CHECK(names_in(folder.path()) == Names{"latest", "tiny-1steps"});
}

TEST_CASE("a save of a new step that detects a takeover of the folder neither publishes nor prunes") {
  const TemporaryFolder folder;
  UnsyncedDisk files;
  for (const int step : {1, 2}) REQUIRE(save_as(folder.path(), kOurs, step, 1, files) == "");
  const auto model = small_model();
  SaveJob job = job_of(folder.path(), kOurs, 3, model);
  job.keep_last = 1;
  SingleProcess alone;
  // Before anything is written, before it is published, and before older checkpoints are removed.
  const int failing = GENERATE(1, 2, 3);
  CAPTURE(failing);
  int asked = 0;
  job.check_owner = [&] {
    if (++asked >= failing) throw Failure("taken over");
  };
  Published published;
  const std::string error =
      message_of([&] { published = save_checkpoint(job, SnapshotValues(job, 1).get(), alone, files); });
  CHECK(asked == failing);
  if (failing < 3) {
    CHECK(error == "taken over");
    CHECK(names_in(folder.path()) == Names{"latest", "tiny-1steps", "tiny-2steps"});
    CHECK(read_file(folder / "latest") == "tiny-2steps\n");
  } else {
    CHECK(error == "");
    CHECK(published.remark == "older checkpoints were not deleted: taken over");
    CHECK(names_in(folder.path()) == Names{"latest", "tiny-1steps", "tiny-2steps", "tiny-3steps"});
  }
}

}  // namespace mpzero::io
