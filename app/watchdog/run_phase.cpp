#include "app/watchdog/run_phase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mpzero {

const char* name_of(RunPhase phase) {
  constexpr std::array kNames = {"network", "setup", "first_step", "training", "validation", "checkpoint", "ending"};
  return kNames[std::min(static_cast<size_t>(phase), kNames.size() - 1)];
}

std::string describe(RunPhase phase, int64_t step) {
  switch (phase) {
    case RunPhase::kNetwork:
      return "while connecting the hosts";
    case RunPhase::kSetUp:
      return "during set-up";
    case RunPhase::kFirstStep:
      return fmt::format("in step {}, the run's first", step);
    case RunPhase::kTraining:
      return fmt::format("in step {}", step);
    case RunPhase::kValidation:
      return fmt::format("in the validation after step {}", step);
    case RunPhase::kCheckpoint:
      return fmt::format("in the checkpoint after step {}", step);
    default:
      return fmt::format("at the end, after step {}", step);
  }
}

}  // namespace mpzero
