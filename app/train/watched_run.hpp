#pragma once

#include <functional>

#include "app/liveness/liveness.hpp"

namespace mpzero {

// Runs `work`, and has what breaks it told by the one report of the run, which ends all ranks: what this rank alone has
// met, or what is known to be the fault of some ranks. A user's mistake, which another host would not mend, is thrown
// on; so is everything where the ranks do not watch each other. Returns what `work` does.
int run_watched(Liveness& liveness, const std::function<int()>& work);

}  // namespace mpzero
