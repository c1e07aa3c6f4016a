#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "app/liveness/rank_roster.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("Only the process that was meant is killed") {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string words = nlohmann::json(this_process(1, 1)).dump();
    (void)!write(ready[1], words.data(), words.size());
    close(ready[1]);
    pause();
    _exit(0);
  }
  close(ready[1]);
  std::string words(4096, '\0');
  const ssize_t length = read(ready[0], words.data(), words.size());
  close(ready[0]);
  REQUIRE(length > 0);
  words.resize(static_cast<size_t>(length));
  const RankIdentity meant = nlohmann::json::parse(words).get<RankIdentity>();
  REQUIRE(meant.pid == child);

  RankIdentity other = meant;
  other.started = 1;  // an earlier process of this id
  kill_process(other);
  other.started = 0;
  kill_process(other);
  other = meant;
  other.machine += "-2";
  kill_process(other);
  // Never this one.
  kill_process(this_process(0, 1));
  int status = 0;
  CHECK(waitpid(child, &status, WNOHANG) == 0);

  kill_ranks({.own = 0, .ranks = {this_process(0, 1), meant}, .token = ""}, {1});
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

}  // namespace mpzero
