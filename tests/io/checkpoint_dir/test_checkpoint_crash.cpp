#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/skip.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr const char* kOld = "tiny-1steps";
constexpr const char* kNew = "tiny-2steps";

// A tmpfs of one MiB. mounted() is false if mounting is not permitted.
class SmallDisk {
 public:
  explicit SmallDisk(fs::path path) : path_(std::move(path)) {
    fs::create_directory(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  fs::path path_;
  bool mounted_;
};

}  // namespace

TEST_CASE("if one rank fails to write, all ranks keep the previous checkpoint") {
  const auto model = small_model();
  const int failing = GENERATE(0, 1, 2);
  const TemporaryFolder folder;
  save(folder.path(), kOld, progress_at(1), model, 3, Split::kEven, 1);
  const auto errors =
      save(folder.path(), kNew, progress_at(2), model, 3, Split::kEven, 2, [&](int rank, size_t shard, StateKind kind) {
        if (rank == failing && shard == 1 && kind == StateKind::kExpAvg) {
          throw Failure("the device is gone");
        }
      });
  for (const std::string& error : errors) {
    CHECK(error == "rank " + std::to_string(failing) + ": the device is gone");
  }
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", kOld});
  CHECK(latest_checkpoint(folder.path()) == folder / kOld);
  CHECK(holds_generation(folder / kOld, model, 1));
  CHECK(save(folder.path(), kNew, progress_at(2), model, 3, Split::kEven, 2) == std::vector<std::string>(3));
  CHECK(holds_generation(folder / kNew, model, 2));
}

TEST_CASE("an error while replacing a checkpoint of the same name keeps the previous one") {
  const auto model = small_model();
  const TemporaryFolder folder;
  save(folder.path(), kOld, progress_at(1), model, 2, Split::kEven, 1);
  save(folder.path(), kOld, progress_at(1), model, 2, Split::kEven, 2, [](int rank, size_t, StateKind kind) {
    if (rank == 1 && kind == StateKind::kExpAvgSq) throw Failure("the device is gone");
  });
  CHECK(holds_generation(folder / kOld, model, 1));
  // Fewer ranks: no file of the previous checkpoint may remain.
  CHECK(save(folder.path(), kOld, progress_at(1), model, 1, Split::kEven, 3) == std::vector<std::string>(1));
  CHECK(holds_generation(folder / kOld, model, 3));
  CHECK(names_in(folder / kOld).size() == 3);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", kOld});
}

TEST_CASE("a crash between the two renames on a file system without exchange is repaired") {
  const auto model = small_model();
  const TemporaryFolder folder;
  save(folder.path(), kOld, progress_at(1), model, 1, Split::kEven, 1);
  const fs::path replaced = folder / (std::string(kOld) + ".replaced");
  fs::rename(folder / kOld, replaced);
  CHECK(latest_checkpoint(folder.path()) == replaced);
  CHECK(holds_generation(*latest_checkpoint(folder.path()), model, 1));
  save(folder.path(), kNew, progress_at(2), model, 1);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", kOld, kNew});
  CHECK(holds_generation(folder / kOld, model, 1));
}

TEST_CASE("folders of crashed saves are removed, and unrelated folders are kept") {
  const TemporaryFolder folder;
  for (const char* name : {"tiny-5steps.tmp", "tiny-6steps.tmp", "notes.tmp", "tiny-x.tmp"}) {
    fs::create_directory(folder / name);
    write_file(folder / name / "file", "x");
  }
  save(folder.path(), kNew, progress_at(2), small_model(), 1);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"latest", "notes.tmp", kNew, "tiny-x.tmp"});
}

// HDF5 cannot close a file that it could not write. The process must still exit cleanly.
TEST_CASE("a process exits cleanly if the disk fills up anywhere in a checkpoint", "[mount]") {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk");
  if (!disk.mounted()) {
    skip_test("root, to mount a tmpfs");
    return;
  }
  const fs::path filler = folder / "disk" / "filler";
  const fs::path dir = folder / "disk" / "checkpoints";
  constexpr int kDiskBytes = 1 << 20;
  constexpr int kPage = 4096;
  for (int pages_left = 2; pages_left < 20; ++pages_left) {
    CAPTURE(pages_left);
    std::ofstream(filler) << std::string(kDiskBytes - pages_left * kPage, 'x');
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      save(dir, kOld, progress_at(1), small_model(), 1);
      std::exit(0);  // as main does: exit handlers run
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    fs::remove(filler);
    fs::remove_all(dir);
  }
}

TEST_CASE("a path where no folder can be created is reported with the reason") {
  const TemporaryFolder folder;
  write_file(folder / "file", "x");
  for (const std::string& error : save(folder / "file" / "checkpoints", kNew, progress_at(2), small_model(), 2)) {
    CHECK_THAT(error, Contains((folder / "file").string()) && Contains("Not a directory"));
  }
  for (const char* tag : {"", "a/b", "..", "latest"}) {
    for (const std::string& error : save(folder.path(), tag, progress_at(2), small_model(), 2)) {
      CHECK_THAT(error, Contains("plain folder name"));
    }
  }
  if (::geteuid() != 0) {
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
    for (const std::string& error : save(folder.path(), kNew, progress_at(2), small_model(), 2)) {
      CHECK_THAT(error, Contains("Permission denied"));
    }
    fs::permissions(folder.path(), fs::perms::owner_all);
  }
}

}  // namespace mpzero::io
