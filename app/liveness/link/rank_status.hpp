#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parallel/trace/flight_recorder.hpp"

namespace mpzero {

// What a run is doing, for callers that wait for it.
enum class RunPhase : uint8_t { kNetwork, kSetUp, kFirstStep, kTraining, kValidation, kCheckpoint, kEnding };

// "in step 12", "in the checkpoint after step 12", …
std::string describe(RunPhase phase, int64_t step);
// The phase of this number; the nearest one if there is none.
RunPhase phase_of(int number);
// "1.5 MiB"
std::string show_bytes(int64_t bytes);

// What a rank reports about itself each second.
struct RankStatus {
  int64_t step = 0;
  RunPhase phase = RunPhase::kSetUp;
  double idle = 0;     // seconds since the last progress
  double allowed = 0;  // seconds that this phase may take without progress; 0: no limit
  std::vector<parallel::ChannelRecord> channels;
  std::string complaint;  // what takes the rank too long, in its own words; empty: nothing
};

// A status and what went wrong.
struct RankReport {
  RankStatus status;
  std::optional<std::string> error;  // of the rank or its device
  std::vector<int> culprits;         // ranks that are known to be the cause of the error; empty: not known
};

void to_json(nlohmann::json& json, const RankStatus& status);
void from_json(const nlohmann::json& json, RankStatus& status);

}  // namespace mpzero
