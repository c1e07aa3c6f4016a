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

  kill_ranks({.own = 0, .ranks = {this_process(0, 1), meant}, .secret = {}}, {1});
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("Each address is told once, and the loopback interface's only on the same machine") {
  RankIdentity identity;
  identity.addresses = {"10.0.0.1", "10.0.1.1", "10.0.0.1"};
  CHECK(told_addresses(identity, /*from_same_machine=*/false) == std::vector<std::string>{"10.0.0.1", "10.0.1.1"});
  CHECK(told_addresses(identity, /*from_same_machine=*/true) ==
        std::vector<std::string>{"127.0.0.1", "10.0.0.1", "10.0.1.1"});
}

}  // namespace mpzero
