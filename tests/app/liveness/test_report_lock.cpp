#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "app/liveness/report_lock.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {

using io::testing::TemporaryFolder;

TEST_CASE("The lock of a report is held by one process at a time, and its file is gone afterwards") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "failure.json";
  constexpr int kHolders = 4;
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::atomic<int> held = 0;
  {
    std::vector<std::jthread> holders;
    for (int i = 0; i < kHolders; ++i) {
      holders.emplace_back([&] {
        for (int turn = 0; turn < 100; ++turn) {
          const ReportLock lock(file, std::chrono::milliseconds(30'000));
          if (lock.is_held()) ++held;
          if (++inside > 1) ++most;
          std::this_thread::yield();
          --inside;
        }
      });
    }
  }
  CHECK(held == kHolders * 100);
  CHECK(most == 0);
  CHECK_FALSE(std::filesystem::exists(file.string() + ".lock"));
}

TEST_CASE("A lock that another process holds is waited for up to the limit, and its file stays") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "failure.json";
  const ReportLock first(file, std::chrono::milliseconds(0));
  CHECK(first.is_held());
  CHECK_FALSE(ReportLock(file, std::chrono::milliseconds(10)).is_held());
  CHECK(std::filesystem::exists(file.string() + ".lock"));
}

TEST_CASE("Where the lock's file cannot be made nothing is held") {
  const TemporaryFolder folder;
  CHECK_FALSE(ReportLock(folder.path() / "none" / "failure.json", std::chrono::milliseconds(30'000)).is_held());
}

}  // namespace mpzero
