#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>

#include "base/error.hpp"
#include "io/folder_lock.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero::io {
using namespace testing;
using Catch::Contains;
namespace {

constexpr std::chrono::milliseconds kAtOnce(0);

TEST_CASE("a folder in use is refused with who uses it, and free again afterwards") {
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

TEST_CASE("a killed owner leaves the folder free, and one that is about to leave is waited for") {
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

}  // namespace
}  // namespace mpzero::io
