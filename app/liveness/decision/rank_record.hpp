#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/liveness/link/rank_identity.hpp"
#include "app/liveness/link/rank_status.hpp"

namespace mpzero {

// Seconds. When a rank is gone, its launcher soon ends the others: mpirun one second after the first.
constexpr double kSettleGone = 0.4;

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
  bool reports = false;              // a message of it has come to this rank
  bool abandoned = false;            // it has not heard this rank for too long, and reports to another one
  bool mute = false;                 // it did not answer when this rank searched for a monitor, but its machine did
  bool answered = false;             // it has answered since all ranks were last asked
  bool answered_since_gone = false;  // it has answered since they were first asked after the first loss or error
  int error_order = 0;               // the first error that this rank heard of is number 1
  // From the first loss or error of any rank to that of this one, in seconds.
  std::optional<double> gone_after;
  bool had_answered = false;  // since the first loss or error, before it was lost or failed itself
  bool came_late = false;     // the news of that was delayed: its heartbeats were late at that time
  std::string error;
  std::vector<int> culprits;  // of the error, as in RankReport
  double quiet = 0;           // seconds since its last message

  // It runs no more, and nothing says that it failed.
  bool has_left() const { return state == State::kLeft || state == State::kEnded; }
  // Lost with the first, and not perhaps as a consequence.
  bool is_lost_first() const { return state == State::kLost && gone_after.value_or(0) < kSettleGone && !had_answered; }
};

}  // namespace mpzero
