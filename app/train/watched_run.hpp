#pragma once

#include <functional>

#include "app/liveness/liveness.hpp"

namespace mpzero {

// Runs `work`. If it fails with an error that this rank alone has met, or that is known to be the fault of some ranks,
// the run's one report has the error, and all ranks end. A user error, which another host would not fix, is rethrown;
// so is every error if the ranks do not watch each other. Returns the result of `work`.
int run_watched(Liveness& liveness, const std::function<int()>& work);

}  // namespace mpzero
