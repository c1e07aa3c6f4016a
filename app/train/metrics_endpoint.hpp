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

// The Prometheus endpoint of --metrics_port on the first rank of each host. Rank 0 also exports the metrics of the run
// and writes the list of endpoints to --metrics_sd_dir. Must outlive the log passed to open().
class MetricsEndpoint {
 public:
  explicit MetricsEndpoint(const RunConfig& config);

  // Opens the endpoints. Logs a warning for each endpoint that cannot be opened. `setup.run` must be set.
  // `planned_bytes`: estimated memory of a rank; std::nullopt: no estimate. `ec2`: null if this rank does not poll for
  // EC2 notices. Collective.
  void open(const RunSetup& setup, const RunStart& start, std::optional<int64_t> planned_bytes, const Ec2Watch* ec2,
            parallel::MpiRuntime& mpi, StepLog& log);
  // Returns the address and port (0: no endpoint) for the "start" event of the event log. Must be called after open().
  nlohmann::ordered_json facts() const;
  // Removes the targets of the run from Prometheus. Must be called when the run has finished or stopped on request.
  void ended();
  // Adds the reason to the targets of the run, which Prometheus then shows as down. Must be called when the run has
  // failed.
  void failed(const std::string& reason, StepLog& log);
  // Returns a thread-safe variant of failed() that logs nothing. Must be called after open().
  std::function<void(std::string_view reason)> late_failure() const;

 private:
  // Returns an error message if this rank's endpoint cannot be opened, else an empty string.
  std::string open_exporter(const RunSetup& setup, std::vector<Collector> collectors, const parallel::MpiRuntime& mpi);

  RunMetrics metrics_;
  std::string address_;
  int64_t port_ = 0;  // 0: no rank has an endpoint
  std::optional<Exporter> exporter_;
  std::optional<Discovery> discovery_;
};

}  // namespace mpzero
