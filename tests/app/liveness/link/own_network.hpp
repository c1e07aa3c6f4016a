#pragma once

#include <sched.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "tests/skip.hpp"

namespace mpzero {

// Runs `work` on a thread with a network of its own, which the shell commands `setup` configure. Threads that `work`
// starts are in it, too. Skips the test case, and returns false, if this process cannot make one.
inline bool in_own_network(const std::string& setup, const std::function<void()>& work) {
  bool has_network = false;
  std::thread([&] {
    has_network = unshare(CLONE_NEWNET) == 0 && std::system(setup.c_str()) == 0;
    if (has_network) work();
  }).join();
  if (!has_network) skip_test("a network of its own (root and iproute2)");
  return has_network;
}

}  // namespace mpzero
