#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "app/watchdog/host_board.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {
namespace {

using io::testing::TemporaryFolder;

// Runs `work` in a child, which then waits for a signal.
template <class Work>
pid_t spawn(const Work& work) {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    work();
    (void)!write(ready[1], "x", 1);
    while (true) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  return pid;
}

}  // namespace

TEST_CASE("a rank reads the state of another process on its host, and detects its exit") {
  const TemporaryFolder folder;
  const HostBoard board("start", /*ranks=*/3, /*own=*/0, /*rank=*/4, folder.path());
  CHECK(board.neighbors().empty());
  const pid_t pid = spawn([&] {
    HostBoard& other = *new HostBoard("start", 3, 1, 5, folder.path());  // lives as long as the process
    other.write({.phase = RunPhase::kCheckpoint, .step = 7, .progress = 9, .idle = 100},
                {{.name = "parameters",
                  .ranks = {.first = 1, .count = 2, .stride = 4},
                  .queued = 8,
                  .started = 7,
                  .completed = 6,
                  .last = {}}});
    other.announce_end(2);
  });
  Neighbor seen = board.neighbors().at(0);
  CHECK((seen.rank == 5 && seen.pid == pid && seen.alive && seen.exit_status == 2));
  CHECK((seen.activity.phase == RunPhase::kCheckpoint && seen.activity.step == 7 && seen.activity.progress == 9));
  CHECK((seen.activity.idle >= 100 && seen.quiet < 100));
  CHECK(seen.channels.at(0).ranks == parallel::RankGroup{.first = 1, .count = 2, .stride = 4});
  CHECK((seen.channels[0].queued == 8 && seen.channels[0].started == 7 && seen.channels[0].completed == 6));
  // Also one that its parent has not waited for.
  kill(pid, SIGKILL);
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(board.neighbors().at(0).alive);
  REQUIRE(waitpid(pid, nullptr, 0) == pid);
  CHECK_FALSE(board.neighbors().at(0).alive);
}

TEST_CASE("only one rank of a host reports a stop or a failure") {
  const TemporaryFolder folder;
  HostBoard zero("start", 2, 0, 0, folder.path());
  HostBoard one("start", 2, 1, 1, folder.path());
  CHECK(one.claim_stop());
  CHECK_FALSE(zero.claim_stop());
  CHECK(zero.claim_failure());
  CHECK_FALSE(one.claim_failure());
}

TEST_CASE("the file of a host is private and unlinked once all ranks use it, and an unusable path is reported") {
  const TemporaryFolder folder;
  const HostBoard board("start", 1, 0, 0, folder.path());
  const std::filesystem::path file = std::filesystem::directory_iterator(folder.path())->path();
  using std::filesystem::perms;
  CHECK(std::filesystem::status(file).permissions() == (perms::owner_read | perms::owner_write));
  board.remove_name();
  CHECK(std::filesystem::is_empty(folder.path()));
  std::filesystem::create_symlink(folder.path() / "elsewhere", file);
  for (const auto& unusable : {folder.path(), folder.path() / "none"}) {
    const HostBoard alone("start", 2, 0, 0, unusable);
    CHECK_THAT(alone.problem(), Catch::Contains(unusable.string()));
    CHECK(alone.neighbors().empty());
  }
}

}  // namespace mpzero
