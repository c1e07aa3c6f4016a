#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/liveness/link/clock.hpp"
#include "app/liveness/link/handshake.hpp"

namespace mpzero {

// Why a connection was closed whose other side is not known to be a rank of this run: "it does not know this run's
// secret".
std::string describe(Handshake::Refusal refusal);

// Connections that were turned away. The first is reported to the user immediately, the others together from time to
// time.
class Strangers {
 public:
  // The minimum time between two warnings.
  static constexpr std::chrono::minutes kSilence{10};

  // `from`: "10.1.2.3:4711"; `why`: completes "because".
  void turned_away(const std::string& from, const std::string& why);
  // One sentence for the user, to follow "rank R on HOST". Empty: no warning.
  std::string take_warning(LivenessTime now);

 private:
  int64_t count_ = 0;  // since the last warning
  std::string from_;   // the first of them
  std::string why_;
  std::optional<LivenessTime> reported_;
};

}  // namespace mpzero
