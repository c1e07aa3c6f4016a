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

// What --metrics_port and --metrics_sd_dir ask for: Prometheus' endpoint on the first rank of each node and, on rank 0,
// the metrics of the run and the file that lists the endpoints. It must outlive the log that it observes.
class MetricsEndpoint {
 public:
  explicit MetricsEndpoint(const RunConfig& config);

  // Opens them. What cannot be opened is a warning and is left out: training does not end for want of a port. `setup`
  // knows its run. `planned_bytes`: of memory, of a rank; std::nullopt: there is no plan. `ec2`: null: nothing is known
  // of EC2's notices. Collective.
  void open(const RunSetup& setup, const RunStart& start, std::optional<int64_t> planned_bytes, const Ec2Watch* ec2,
            parallel::MpiRuntime& mpi, StepLog& log);
  // What the event log records of a start: where the endpoints answer; after open(). Port 0: none does.
  nlohmann::ordered_json facts() const;
  // The run ends as it should, finished or stopped on request: Prometheus asks no more.
  void ended();
  // The run fails: Prometheus learns why, and finds the run down.
  void failed(const std::string& reason, StepLog& log);
  // The same, where nothing else can be said any more, for any thread; after open().
  std::function<void(std::string_view reason)> late_failure() const;

 private:
  // Why this rank's endpoint could not be opened; empty: it is open, or not this rank's.
  std::string open_exporter(const RunSetup& setup, std::vector<Collector> collectors, const parallel::MpiRuntime& mpi);

  RunMetrics metrics_;
  std::string address_;
  int64_t port_ = 0;  // 0: no rank has an endpoint
  std::optional<Exporter> exporter_;
  std::optional<Discovery> discovery_;
};

}  // namespace mpzero
