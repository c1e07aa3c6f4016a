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

// Stops all ranks together once any of them has a stop request.
class StopAgreement {
 public:
  // All arguments must outlive it.
  StopAgreement(const StopRequest& request, const RunConfig& config, ProcessGroup& group, StepLog& log)
      : request_(request), config_(config), group_(group), log_(log) {}

  // This rank's term in a sum over the ranks; the sum is 0 until any rank has a stop request.
  int vote() const { return request_.requested() ? 1 : 0; }

  // Saves the state at `position`, waits for the save, and logs it; skips the save if it would take longer than the
  // grace period or the time until a host ends. If the program itself requested the stop, stop.json lists the hosts
  // that the run should leave. Collective; call it once a sum of votes is not 0. Throws Failure on all ranks if nothing
  // is saved.
  void save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const;

 private:
  // The stop request as all ranks know it.
  struct Cause {
    std::string reason;
    double seconds = 0;               // since the first request
    double save_seconds = 0;          // duration of a save
    std::optional<double> time_left;  // for saving; std::nullopt: unknown
    std::vector<std::string> hosts;   // the hosts that the run should leave
  };

  Cause agree(double save_seconds) const;
  // Writes stop.json on rank 0.
  void report(const Cause& cause) const;

  const StopRequest& request_;
  const RunConfig& config_;
  ProcessGroup& group_;
  StepLog& log_;
};

}  // namespace mpzero
