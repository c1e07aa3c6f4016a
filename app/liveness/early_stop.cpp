#include "app/liveness/early_stop.hpp"

#include <chrono>

namespace mpzero {
namespace {

constexpr std::chrono::milliseconds kSettle(300);
// Longer than the monitor needs where a file system does not respond: to settle, for stop.json and for the checkpoint's
// name (kDiskLimit each), and for its message (kPrintLimit). When another rank has died, the launcher may leave the
// monitor no time to report the stop.
constexpr std::chrono::milliseconds kLimit(9000);

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
