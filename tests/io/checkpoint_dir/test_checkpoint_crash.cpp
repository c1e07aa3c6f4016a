#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>

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

// Makes renameat2 fail in this process as it does on a network file system. Returns false if the kernel does not permit
// that.
bool forbid_exchange() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

enum class Outcome { kKilled, kFinished, kCannotTrace };

// Runs `work` in a child process and kills it at its `count`th stop at a system call (entries and exits alike).
Outcome kill_at_system_call(int count, const std::function<void()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(42);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return Outcome::kCannotTrace;
  for (int i = 0; i < count; ++i) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      if (WEXITSTATUS(status) == 43) return Outcome::kCannotTrace;
      REQUIRE(WEXITSTATUS(status) == 0);
      return Outcome::kFinished;
    }
    REQUIRE(WIFSTOPPED(status));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return Outcome::kKilled;
}

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

TEST_CASE("if a save is killed at any system call, `latest` names a complete checkpoint", "[ptrace]") {
  const auto model = small_model();
  const bool replaces = GENERATE(false, true);
  const bool can_exchange = GENERATE(true, false);
  if (!replaces && !can_exchange) return;  // nothing to exchange
  const std::string target = replaces ? kOld : kNew;
  int kills = 0;
  for (int count = 1;; count += 3) {
    const TemporaryFolder folder;
    save(folder.path(), kOld, progress_at(1), model, 1, Split::kEven, 1);
    // No threads and no Catch in the child: it is a copy of one thread only.
    const Outcome outcome = kill_at_system_call(count, [&] {
      if (!can_exchange && !forbid_exchange()) ::_exit(43);
      SingleProcess alone;
      SaveJob job{
          .checkpoint_dir = folder.path(), .tag = target, .progress = progress_at(2), .shards = {}, .model_type = {}};
      for (const UnitSpec& unit : model) job.shards.push_back({&unit, 0, unit.numel()});
      std::vector<float> values;
      const auto fetch = [&](size_t i, StateKind kind) -> std::span<const float> {
        values.resize(static_cast<size_t>(job.shards[i].count));
        for (size_t k = 0; k < values.size(); ++k) {
          const uint32_t bits = bits_at(i, kind, static_cast<int64_t>(k), 2);
          std::memcpy(&values[k], &bits, sizeof bits);
        }
        return values;
      };
      save_checkpoint(job, {.fetch = fetch}, alone);
    });
    if (outcome == Outcome::kCannotTrace) {
      skip_test("a kernel that lets a process trace and filter the system calls of its child");
      return;
    }
    CAPTURE(count, replaces, can_exchange);
    const auto latest = latest_checkpoint(folder.path());
    REQUIRE(latest.has_value());
    const bool is_new = latest->filename() == target && open_hdf5(*latest)->progress().step == 2;
    REQUIRE(holds_generation(*latest, model, is_new ? 2 : 1));
    if (!replaces) REQUIRE(holds_generation(folder / kOld, model, 1));
    if (outcome == Outcome::kFinished) {
      REQUIRE(is_new);
      break;
    }
    ++kills;
    if (kills % 8 == 0) {
      REQUIRE(save(folder.path(), "tiny-3steps", progress_at(3), model, 2, Split::kEven, 3) ==
              std::vector<std::string>(2));
      REQUIRE(holds_generation(folder / "tiny-3steps", model, 3));
      for (const std::string& name : names_in(folder.path())) {
        REQUIRE_FALSE(name.ends_with(".tmp"));
        REQUIRE_FALSE(name.ends_with(".replaced"));
      }
    }
  }
  CHECK(kills > 30);
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

TEST_CASE("a full disk is reported on every rank in one sentence with path and reason, and changes nothing",
          "[mount]") {
  const TemporaryFolder folder;
  const SmallDisk disk(folder / "disk");
  if (!disk.mounted()) {
    skip_test("root, to mount a tmpfs");
    return;
  }
  const auto model = small_model();
  const fs::path dir = folder / "disk" / "checkpoints";
  REQUIRE(save(dir, kOld, progress_at(1), model, 2, Split::kEven, 1) == std::vector<std::string>(2));
  const std::vector<UnitSpec> big = {{"big", {{"w", {400'000}}}}};
  for (const std::string& error : save(dir, kNew, progress_at(2), big, 2)) {
    CHECK_THAT(error, Contains(dir.string()) && Contains("No space left on device") && Contains("rank "));
    CHECK(error.find('\n') == std::string::npos);
  }
  CHECK(names_in(dir) == std::vector<std::string>{"latest", kOld});
  CHECK(holds_generation(*latest_checkpoint(dir), model, 1));

  // So full that not even HDF5's own structure fits.
  const fs::path filler = folder / "disk" / "filler";
  std::ofstream(filler) << std::string(2 << 20, 'x');
  for (const std::string& error : save(dir, kNew, progress_at(2), model, 2)) {
    CHECK_THAT(error, Contains(dir.string()) && Contains("No space left on device; free some space"));
    CHECK(error.find('\n') == std::string::npos);
  }
  CHECK(names_in(dir) == std::vector<std::string>{"latest", kOld});
  CHECK(holds_generation(*latest_checkpoint(dir), model, 1));
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
