#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

  // Saves the state at `position` and waits for it, unless that would take longer than the grace period, and logs what
  // it does. Collective; call it once a sum of votes is not 0. Throws Failure on all ranks if nothing is saved.
  void save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const;

 private:
  const StopRequest& request_;
  const RunConfig& config_;
  ProcessGroup& group_;
  StepLog& log_;
};

}  // namespace mpzero
