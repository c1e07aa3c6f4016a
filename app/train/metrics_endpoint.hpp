#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/config/run_setup.hpp"
#include "app/ec2/ec2_watch.hpp"
#include "app/exporter/discovery.hpp"
#include "app/exporter/exporter.hpp"
#include "app/exporter/run_metrics.hpp"
#include "app/log/step_log.hpp"
#include "app/train/start_facts.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// The Prometheus endpoint of --metrics_port on the first rank of each host and, on rank 0, the metrics of the run and
// the file of --metrics_sd_dir that lists the endpoints. Must outlive the log that it observes.
class MetricsEndpoint {
 public:
  explicit MetricsEndpoint(const RunConfig& config);

  // Opens the endpoints. An endpoint that cannot be opened is a warning: training continues without it. `setup.run`
  // must be set. `planned_bytes`: planned memory of a rank; std::nullopt: no plan. `ec2`: null if this rank does not
  // watch EC2's notices. Collective.
  void open(const RunSetup& setup, const RunStart& start, std::optional<int64_t> planned_bytes, const Ec2Watch* ec2,
            parallel::MpiRuntime& mpi, StepLog& log);
  // The endpoints' address and port (0: no endpoint) for the event log's record of a start. Call after open().
  nlohmann::ordered_json facts() const;
  // Call when the run has finished or stopped on request: removes its targets from Prometheus.
  void ended();
  // Call when the run has failed: Prometheus shows the target as down, with the reason.
  void failed(const std::string& reason, StepLog& log);
  // Like failed(), for any thread, when nothing can be logged any more. Call after open().
  std::function<void(std::string_view reason)> late_failure() const;

 private:
  // Returns why this rank's endpoint could not be opened; empty: it is open, or this rank has none.
  std::string open_exporter(const RunSetup& setup, std::vector<Collector> collectors, const parallel::MpiRuntime& mpi);

  RunMetrics metrics_;
  std::string address_;
  int64_t port_ = 0;  // 0: no rank has an endpoint
  std::optional<Exporter> exporter_;
  std::optional<Discovery> discovery_;
};

}  // namespace mpzero
