#include "app/liveness/early_stop.hpp"

#include <chrono>

namespace mpzero {
namespace {

constexpr std::chrono::milliseconds kSettle(300);
// Longer than the monitor takes that must give up a file system which does not answer (last_words.cpp): where another
// rank is gone, a launcher may leave it no time to tell of the stop.
constexpr std::chrono::milliseconds kLimit(6000);

}  // namespace

bool EarlyStop::ask(int exit_code, LivenessTime now) {
  if (exit_code_ && *exit_code_ >= exit_code) return false;
  exit_code_ = exit_code;
  if (!since_) since_ = now;
  return true;
}

bool EarlyStop::settled(LivenessTime now) const { return since_ && now - *since_ >= kSettle; }

bool EarlyStop::overdue(LivenessTime now) const { return since_ && now - *since_ > kLimit; }

}  // namespace mpzero
