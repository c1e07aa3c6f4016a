#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/handshake.hpp"

namespace mpzero {

// Why a connection was closed whose other side is none of the run's ranks, as far as is known: "it does not know this
// run's secret".
std::string describe(Handshake::Refusal refusal);

// Who connected and was turned away: the user is told of the first at once, and of the others together, now and then.
class Strangers {
 public:
  // How long it is silent after it has told something.
  static constexpr std::chrono::minutes kSilence{10};

  // `from`: "10.1.2.3:4711"; `why`: behind "because".
  void turned_away(const std::string& from, const std::string& why);
  // One sentence for the user, behind "rank R on HOST"; empty: nothing to tell.
  std::string take_warning(LivenessTime now);

 private:
  int64_t count_ = 0;  // since the last warning
  std::string from_;   // the first of them
  std::string why_;
  std::optional<LivenessTime> told_;
};

}  // namespace mpzero
