#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <vector>

#include "app/liveness/link/control_channel.hpp"
#include "tests/catch.hpp"

namespace mpzero {

// While it exists, this process cannot open anything; with `and_lower`, not even after it closes something.
class NoDescriptors {
 public:
  explicit NoDescriptors(bool and_lower = false) {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    // The lowest free number is the first that is not allowed, so that closing one makes room for one.
    while (true) {
      Descriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      REQUIRE(one);
      const int number = one.get();
      taken_.push_back(std::move(one));
      if (number >= highest()) break;
    }
    rlimit lower = before_;
    lower.rlim_cur = and_lower ? 0 : static_cast<rlim_t>(taken_.back().get()) + 1;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &lower) == 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  // The highest descriptor in use.
  static int highest() {
    int found = 0;
    constexpr int kMost = 4096;
    for (int number = 0; number < kMost; ++number) {
      if (fcntl(number, F_GETFD) >= 0) found = number;
    }
    return found;
  }

  rlimit before_{};
  std::vector<Descriptor> taken_;
};

}  // namespace mpzero
