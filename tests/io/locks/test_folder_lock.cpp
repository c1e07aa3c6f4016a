#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/locks/folder_lock.hpp"
#include "tests/io/checkpoint_fixture.hpp"
#include "tests/io/faulty_disk.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

const FolderLock::Options kAtOnce{.patience = std::chrono::milliseconds(0)};

TEST_CASE("a folder in use is refused with its owner, and free again afterwards") {
  const TemporaryFolder folder;
  {
    const FolderLock first(folder.path());
    CHECK_THROWS_WITH(FolderLock(folder.path(), kAtOnce), Contains("process " + std::to_string(::getpid())) &&
                                                              Contains(folder.path().string()) &&
                                                              Contains("--checkpoint_dir"));
    CHECK_THROWS_AS(FolderLock(folder.path(), kAtOnce), UserError);
  }
  CHECK_NOTHROW(FolderLock(folder.path(), kAtOnce));
}

TEST_CASE("a killed owner frees the folder, and an exiting owner is waited for") {
  const TemporaryFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const FolderLock lock(folder.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK_THROWS_WITH(FolderLock(folder.path(), kAtOnce), Contains("process " + std::to_string(child)));
  REQUIRE(::kill(child, SIGKILL) == 0);
  CHECK_NOTHROW(FolderLock(folder.path()));
  CHECK(::waitpid(child, nullptr, 0) == child);
  ::close(ready[0]);
  ::close(ready[1]);
}

// A clock that runs without waiting. `at` is called once its time has come.
WaitingClock fast_clock(std::chrono::milliseconds& now, std::chrono::milliseconds when, std::function<void()> at) {
  return {.now = [&now] { return now; },
          .wait =
              [&now, when, at = std::move(at)](std::chrono::milliseconds time) {
                if (now < when && now + time >= when) at();
                now += time;
              }};
}

TEST_CASE("a requeued job waits for the lock of its previous attempt") {
  const TemporaryFolder folder;
  auto first = std::make_optional<FolderLock>(folder.path(), FolderLock::Options{.job = "77"});
  std::chrono::milliseconds now{};
  std::vector<std::string> said;
  FolderLock::Options requeued{.job = "77",
                               .patience_with_predecessor = FolderLock::kPatienceWithPredecessor,
                               .say = [&](const std::string& line) { said.push_back(line); },
                               .clock = fast_clock(now, std::chrono::minutes(9), [&] { first.reset(); })};
  SECTION("which ends") {
    CHECK_NOTHROW(FolderLock(folder.path(), requeued));
    REQUIRE(said.size() == 1);
    CHECK_THAT(said.front(), Contains("waiting up to 600 s") && Contains("job 77"));
  }
  SECTION("which never ends: a failure, not the user's error") {
    requeued.clock = fast_clock(now, std::chrono::hours(1), [] {});
    CHECK_THROWS_AS(FolderLock(folder.path(), requeued), Failure);
    CHECK(now >= std::chrono::minutes(10));
  }
  SECTION("and not for another job's, whose number ends with the same digits") {
    requeued.job = "7";
    CHECK_THROWS_AS(FolderLock(folder.path(), requeued), UserError);
  }
  SECTION("and not where it is the job's first start") {
    requeued.patience_with_predecessor = {};
    CHECK_THROWS_AS(FolderLock(folder.path(), requeued), UserError);
  }
}

// Options as on a file system without locks, or with locks that have no effect on other hosts.
FolderLock::Options without_locks(int error = ENOSYS) {
  return {.flock = [error](int) { return error; }, .renewal = std::chrono::milliseconds(0)};
}

TEST_CASE("a run that waited for a refused run locks the folder again") {
  const TemporaryFolder parent;
  const std::filesystem::path folder = parent.path() / "run";
  make_folders(folder);
  auto first = std::make_optional<FolderLock>(folder);
  std::chrono::milliseconds now{};
  const auto refuse_first = [&] {
    first->remove();
    first.reset();
    CHECK(std::filesystem::remove(folder));
  };
  const FolderLock second(folder, {.clock = fast_clock(now, std::chrono::seconds(1), refuse_first)});
  CHECK_THROWS_WITH(FolderLock(folder, kAtOnce), Contains("process " + std::to_string(::getpid())));
}

TEST_CASE("without locks, the second of two runs is refused, and both are warned") {
  const TemporaryFolder folder;
  const int error = GENERATE(ENOSYS, ENOLCK, EOPNOTSUPP);
  std::vector<std::string> warnings;
  FolderLock::Options options = without_locks(error);
  options.warn = [&](const std::string& line) { warnings.push_back(line); };
  {
    const FolderLock first(folder.path(), options);
    CHECK_THROWS_WITH(FolderLock(folder.path(), options), Contains("process " + std::to_string(::getpid())) &&
                                                              Contains(folder.path().string()) &&
                                                              Contains("--checkpoint_dir"));
    REQUIRE(warnings.size() == 2);
    CHECK_THAT(warnings.front(), Contains("file locks") && Contains(folder.path().string()));
  }
  CHECK_NOTHROW(FolderLock(folder.path(), options));
  CHECK(names_in(folder.path()) == std::vector<std::string>{".lock"});
}

TEST_CASE("a lock that is local to this host is not sufficient") {
  const TemporaryFolder folder;
  // A run on another host: its lock is not visible here.
  OwnerRecord elsewhere = this_owner("77");
  elsewhere.kernel = "of another host";
  elsewhere.host = "node9";
  FolderOwner other(folder.path(), elsewhere, {});
  std::chrono::milliseconds now{0};
  int renewals = 0;
  FolderLock::Options options{.reach = LockReach::kThisHost,
                              .clock = {.now = [&] { return now; },
                                        .wait =
                                            [&](std::chrono::milliseconds time) {
                                              now += time;
                                              other.renew();
                                              ++renewals;
                                            }},
                              .renewal = std::chrono::milliseconds(0)};
  std::vector<std::string> warnings;
  options.warn = [&](const std::string& line) { warnings.push_back(line); };
  CHECK_THROWS_WITH(FolderLock(folder.path(), options), Contains("on node9 (job 77)"));
  CHECK(renewals > 0);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings.front(), Contains("other hosts"));
  // A lock that reaches all processes proves that the other one has ended.
  options.reach = LockReach::kAll;
  renewals = 0;
  FolderLock mine(folder.path(), options);
  CHECK(renewals == 0);
  CHECK_NOTHROW(mine.check());
  CHECK_THROWS_AS(other.renew(), FolderTaken);
}

TEST_CASE("a thread renews the owner record") {
  const TemporaryFolder folder;
  FolderLock::Options options = without_locks();
  options.renewal = std::chrono::milliseconds(1);
  const FolderLock lock(folder.path(), options);
  const std::string before = read_file(folder / ".owner-1");
  while (read_file(folder / ".owner-1") == before) std::this_thread::yield();
  SUCCEED();
}

TEST_CASE("a refused pruning suggests a remedy for pruning") {
  const TemporaryFolder folder;
  const FolderLock run(folder.path());
  FolderLock::Options options = kAtOnce;
  options.purpose = FolderLock::Purpose::kPruning;
  const std::string error = message_of([&] { FolderLock(folder.path(), options); });
  CHECK_THAT(error, Contains("is using") && Contains("then prune"));
  CHECK(error.find("--checkpoint_dir") == std::string::npos);
}

FolderLock::Options reaching_all() { return {.reach = LockReach::kAll, .renewal = std::chrono::milliseconds(0)}; }

TEST_CASE("if the lock excludes all processes, a missing record is harmless") {
  const TemporaryFolder folder;
  FolderLock lock(folder.path(), reaching_all());
  REQUIRE(fs::remove(folder / ".owner-1"));
  CHECK_NOTHROW(lock.check());
  CHECK_NOTHROW(lock.set_run("0123456789abcdef"));
}

TEST_CASE("a folder that disappears is not created again, but one that the user creates is locked again") {
  const TemporaryFolder parent;
  const fs::path folder = parent / "checkpoints";
  fs::create_directory(folder);
  FolderLock lock(folder, reaching_all());
  fs::rename(folder, parent / "moved");
  CHECK_THROWS_AS(lock.check(), Failure);
  CHECK_FALSE(fs::exists(folder));
  fs::create_directory(folder);
  CHECK_NOTHROW(lock.check());
  CHECK_THROWS_AS(FolderLock(folder, kAtOnce), UserError);
  fs::remove(folder / ".lock");
  {
    const FolderLock other(folder, kAtOnce);
    CHECK_THROWS_AS(lock.check(), FolderTaken);
  }
  CHECK_NOTHROW(lock.check());
}

// /proc is another file system than the folder's.
TEST_CASE("a folder on a different file system is refused until the original one is back") {
  const TemporaryFolder parent;
  const fs::path link = parent / "checkpoints";
  for (const LockReach reach : {LockReach::kAll, LockReach::kThisHost}) {
    const fs::path mounted = parent / fmt::format("mounted-{}", static_cast<int>(reach));
    fs::create_directory(mounted);
    fs::create_directory_symlink(mounted, link);
    FolderLock::Options options = reaching_all();
    options.reach = reach;
    FolderLock lock(link, options);
    fs::remove(link);
    fs::create_directory_symlink("/proc", link);
    CHECK_THROWS_AS(lock.check(), Failure);
    fs::remove(link);
    fs::create_directory_symlink(mounted, link);
    CHECK_NOTHROW(lock.check());
    fs::remove(link);
  }
}

TEST_CASE("a full disk does not prevent a run from using a folder if the lock is decisive") {
  class FullDisk final : public UnsyncedDisk {
   public:
    int write(int, int64_t, std::span<const std::byte>, size_t&) override { return ENOSPC; }
  };
  const TemporaryFolder folder;
  FullDisk full;
  std::string warning;
  FolderLock::Options options = reaching_all();
  options.warn = [&](const std::string& text) { warning = text; };
  FolderLock lock(folder.path(), options, full);
  CHECK_THAT(warning, Contains("could not be recorded") && Contains("No space left"));
  CHECK_NOTHROW(lock.check());
  CHECK_NOTHROW(lock.set_run("0123456789abcdef"));
  CHECK_THROWS_WITH(FolderLock(folder / ".", without_locks(), full), Contains("No space left"));
}

}  // namespace
}  // namespace mpzero::io
