#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/watchdog/watchdog.hpp"
#include "base/error.hpp"

namespace mpzero {

// An exception that ends a run.
struct RunError {
  std::string message;  // one sentence
  ErrorScope scope = ErrorScope::kThisRank;
  int exit_code = kFailureExitCode;
  Why why = Why::kError;
  std::vector<int> culprits;  // ranks known to be the cause
};

// Describes the exception being handled.
RunError current_error();

// Thrown instead of an error that has been reported: the rank ends normally with this exit status.
struct ReportedError {
  int exit_code;
};

// Runs `work` and returns its result. Errors that occur only on this rank and errors with known culprits end the
// process after a failure report is written. For all other errors, rank 0 reports and all ranks throw ReportedError.
int run_watched(Watchdog& watchdog, const std::function<int()>& work);

}  // namespace mpzero
