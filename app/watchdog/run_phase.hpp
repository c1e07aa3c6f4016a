#pragma once

#include <cstdint>
#include <string>

namespace mpzero {

// What a run is doing.
enum class RunPhase : uint8_t { kNetwork, kSetUp, kFirstStep, kTraining, kValidation, kCheckpoint, kEnding };

// Its name in evidence files: "network", "setup", …
const char* name_of(RunPhase phase);
// "in step 12", "in the checkpoint after step 12", …
std::string describe(RunPhase phase, int64_t step);

}  // namespace mpzero
