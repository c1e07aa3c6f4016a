#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpointer.hpp"
#include "app/config/run_config.hpp"
#include "app/health/stop_request.hpp"
#include "app/log/step_log.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// How all ranks stop once any of them was asked to.
class StopAgreement {
 public:
  // All arguments must outlive it.
  StopAgreement(const StopRequest& request, const RunConfig& config, ProcessGroup& group, StepLog& log)
      : request_(request), config_(config), group_(group), log_(log) {}

  // This rank's term in a sum over the ranks, which is 0 as long as no rank is asked to stop.
  int vote() const { return request_.requested() ? 1 : 0; }

  // Saves the state at `position` and waits for it, unless that would take longer than the grace period or than the
  // hosts live, and logs what it does. If the program itself has asked for the stop, stop.json names the hosts that
  // the run should leave. Collective; call it once a sum of votes is not 0. Throws Failure on all ranks if nothing is
  // saved.
  void save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const;

 private:
  // What all ranks know of the stop.
  struct Cause {
    std::string reason;
    double seconds = 0;               // since the first request
    double save_seconds = 0;          // that a save takes
    std::optional<double> time_left;  // for saving; std::nullopt: not known
    std::vector<std::string> hosts;   // that the run should leave
  };

  Cause agree(double save_seconds) const;
  // On rank 0.
  void report(const Cause& cause) const;

  const StopRequest& request_;
  const RunConfig& config_;
  ProcessGroup& group_;
  StepLog& log_;
};

}  // namespace mpzero
