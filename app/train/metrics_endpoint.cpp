#include "app/train/metrics_endpoint.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/exporter/node_metrics.hpp"
#include "app/train/gpu_collector.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"

namespace mpzero {

MetricsEndpoint::MetricsEndpoint(const RunConfig& config) : metrics_(config.train_batch_size * config.seq_length) {}

std::string MetricsEndpoint::open_exporter(const RunSetup& setup, std::vector<Collector> collectors,
                                           const parallel::MpiRuntime& mpi) {
  const RunConfig& config = setup.config;
  if (mpi.local_rank() != 0) return "";
  try {
    exporter_.emplace(ExporterOptions{.address = config.metrics_address,
                                      .port = static_cast<uint16_t>(config.metrics_port),
                                      .labels = {{"run_id", setup.run.id}, {"node", host_name()}},
                                      .disks = {config.checkpoint_dir, "/dev/shm"}},
                      std::move(collectors));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void MetricsEndpoint::open(const RunSetup& setup, const RunStart& start, std::optional<int64_t> planned_bytes,
                           const Ec2Watch* ec2, parallel::MpiRuntime& mpi, StepLog& log) {
  const RunConfig& config = setup.config;
  if (config.metrics_port == 0) return;
  const bool saves = config.checkpoint_freq > 0 && config.checkpoint_freq < config.max_steps;
  if (mpi.rank() == 0) {
    metrics_.begin({.began = start.began,
                    .steps_done = start.steps_done,
                    .restarts = log.earlier_starts(setup.run.id),
                    .max_steps = config.max_steps,
                    .saves = saves,
                    .planned_bytes = planned_bytes});
  }
  log.observe(metrics_);
  std::vector<Collector> collectors;
  if (mpi.rank() == 0) collectors.emplace_back([this](Families& families) { metrics_.collect(families); });
  if (start.device.is_cuda()) collectors.push_back(gpu_collector(gpus_of_host(start.device, mpi)));
  if (ec2 != nullptr) collectors.emplace_back([ec2](Families& families) { collect_ec2(*ec2, families); });
  const std::string problem = open_exporter(setup, std::move(collectors), mpi);
  const std::string target = exporter_ ? fmt::format("{}:{}", host_name(), config.metrics_port) : std::string();
  std::vector<std::string> targets;
  for (const auto& [of_rank, problem_of_rank] : all_gather(mpi, std::pair(target, problem))) {
    if (!of_rank.empty()) targets.push_back(of_rank);
    if (!problem_of_rank.empty()) log.warn(problem_of_rank + "; training continues without this host's metrics.");
  }
  address_ = config.metrics_address;
  port_ = targets.empty() ? 0 : config.metrics_port;
  if (config.metrics_sd_dir.empty() || mpi.rank() != 0) return;
  try {
    discovery_.emplace(config.metrics_sd_dir, setup.run.id, targets,
                       MetricLabels{{"model", config.model_type},
                                    {"slurm_job", parallel::process_environment("SLURM_JOB_ID").value_or("")}});
  } catch (const Error& error) {
    log.warn(fmt::format("--metrics_sd_dir: {}; training continues, but Prometheus will not discover this run.",
                         error.what()));
  }
}

nlohmann::ordered_json MetricsEndpoint::facts() const {
  return {{"metrics_address", address_}, {"metrics_port", port_}};
}

void MetricsEndpoint::ended() {
  if (discovery_) discovery_->remove();
}

void MetricsEndpoint::failed(const std::string& reason, StepLog& log) {
  if (!discovery_) return;
  try {
    discovery_->failed(reason);
  } catch (const Error& error) {
    log.warn(fmt::format("--metrics_sd_dir: {}; Prometheus shows the run as down, without a reason.", error.what()));
  }
}

std::function<void(std::string_view)> MetricsEndpoint::late_failure() const {
  return [discovery = discovery_](std::string_view reason) mutable {
    if (!discovery) return;
    try {
      discovery->failed(std::string(reason));
    } catch (const Error&) {  // Prometheus shows the target as down, without a reason
    }
  };
}

}  // namespace mpzero
