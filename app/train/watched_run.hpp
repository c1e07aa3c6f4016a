#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/watchdog/watchdog.hpp"
#include "base/error.hpp"

namespace mpzero {

// The end of a run through an exception.
struct RunError {
  std::string message;  // one sentence
  ErrorScope scope = ErrorScope::kThisRank;
  int exit_code = kFailureExitCode;
  Why why = Why::kError;
  std::vector<int> culprits;  // ranks that are known to be the cause
};

// Describes the exception being handled.
RunError current_error();

// Runs `work` and returns its result. An error that only this rank met, or that some ranks are known to have caused,
// ends the process with evidence; others are rethrown.
int run_watched(Watchdog& watchdog, const std::function<int()>& work);

}  // namespace mpzero
