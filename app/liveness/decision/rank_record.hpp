#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/liveness/link/rank_identity.hpp"
#include "app/liveness/link/rank_status.hpp"

namespace mpzero {

// What the monitor knows about a rank.
struct RankRecord {
  enum class State : uint8_t {
    kAnswers,
    kFailed,  // it met an error; `error` has its text
    kSilent,  // no message from it for too long
    kLost,    // its connection broke: the process has ended
    kEnded,   // nothing listens at its port any more: it has ended, normally or not
    kLeft     // it has ended normally
  };
  RankIdentity identity;
  RankStatus status;  // the last that it sent
  State state = State::kAnswers;
  bool reports = false;    // a message of it has come to this rank
  bool abandoned = false;  // it has not heard this rank for too long, and reports to another one
  bool mute = false;       // it did not answer when this rank searched for a monitor, but its machine did
  bool answered = false;   // it has answered since all ranks were last asked
  int error_order = 0;     // the first error that this rank heard of is number 1
  std::string error;
  std::vector<int> culprits;  // of the error, as in RankReport
  double quiet = 0;           // seconds since its last message
};

}  // namespace mpzero
