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

// Stops all ranks at the same step once any rank has received a stop request.
class StopAgreement {
 public:
  // All arguments must outlive this object.
  StopAgreement(const StopRequest& request, const RunConfig& config, ProcessGroup& group, StepLog& log)
      : request_(request), config_(config), group_(group), log_(log) {}

  // Returns 1 if this rank has received a stop request, else 0. The caller must sum the votes of all ranks.
  int vote() const { return request_.requested() ? 1 : 0; }

  // Saves the state at `position`, waits for the save to complete, logs the stop, and returns its reason. Throws
  // Failure on all ranks without saving if the save is expected to exceed the grace period or the remaining time of a
  // host. Stop requests by mpzero itself are reported in stop.json with the hosts to exclude. Must be called once the
  // sum of the votes is not 0. Collective.
  std::string save_and_stop(const RunPosition& position, Checkpointer& checkpointer) const;

 private:
  // The stop request, identical on all ranks.
  struct Cause {
    std::string reason;
    double seconds = 0;               // seconds since the first request
    double save_seconds = 0;          // expected duration of a save
    std::optional<double> time_left;  // seconds left for saving; std::nullopt: unknown
    std::vector<std::string> hosts;   // hosts to exclude
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
