#pragma once

#include <map>
#include <optional>
#include <string>

#include "app/liveness/link/clock.hpp"

namespace mpzero {

// A request to end the run without saving: before its first step, or immediately. Callers pass the time; nothing here
// waits.
class EarlyStop {
 public:
  // Records that this rank, or another, was asked to end with this exit code. Higher codes are more urgent. Returns
  // whether the request is new.
  bool ask(int exit_code, LivenessTime now);

  // Records that the run stops to leave this host.
  void leave_host(const std::string& host, const std::string& reason) { left_hosts_.emplace(host, reason); }
  // The reasons to leave hosts, by host.
  const std::map<std::string, std::string>& left_hosts() const { return left_hosts_; }

  bool asked() const { return since_.has_value(); }
  // The run's exit code. Valid once asked() is true.
  int exit_code() const { return *exit_code_; }
  // Whether the monitor may end the run. It waits this long because a launcher asks all ranks to stop when one has
  // died: that is a failure, and is detected within this time.
  bool settled(LivenessTime now) const;
  // Whether the monitor has not ended the run in time, so that this rank ends itself.
  bool overdue(LivenessTime now) const;

 private:
  std::optional<int> exit_code_;
  std::optional<LivenessTime> since_;
  std::map<std::string, std::string> left_hosts_;
};

}  // namespace mpzero
