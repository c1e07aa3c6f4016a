#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/watchdog/watchdog.hpp"
#include "base/error.hpp"

namespace mpzero {

// How a run ends because of an exception.
struct RunError {
  std::string message;  // one sentence
  ErrorScope scope = ErrorScope::kThisRank;
  int exit_code = kFailureExitCode;
  Why why = Why::kError;
  std::vector<int> culprits;  // ranks that are known to be the cause
};

// Of the exception that is being handled.
RunError current_error();

// Runs `work` and returns its result. An error that this rank alone has met, or that is known to be the fault of some
// ranks, ends the process with evidence; others are rethrown.
int run_watched(Watchdog& watchdog, const std::function<int()>& work);

}  // namespace mpzero
