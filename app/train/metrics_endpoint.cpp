#include "app/train/metrics_endpoint.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"

namespace mpzero {

MetricsEndpoint::MetricsEndpoint(const RunConfig& config)
    : metrics_(config.max_steps, config.train_batch_size * config.seq_length) {}

std::string MetricsEndpoint::open_exporter(const RunSetup& setup, const parallel::MpiRuntime& mpi) {
  const RunConfig& config = setup.config;
  if (mpi.local_rank() != 0) return "";
  try {
    exporter_.emplace(ExporterOptions{.address = config.metrics_address,
                                      .port = static_cast<uint16_t>(config.metrics_port),
                                      .labels = {{"run_id", setup.run.id}, {"node", host_name()}},
                                      .host = {.disks = {config.checkpoint_dir, "/dev/shm"}}},
                      mpi.rank() == 0 ? &metrics_ : nullptr);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void MetricsEndpoint::open(const RunSetup& setup, parallel::MpiRuntime& mpi, StepLog& log) {
  const RunConfig& config = setup.config;
  if (config.metrics_port == 0) return;
  log.observe(metrics_);
  const std::string problem = open_exporter(setup, mpi);
  const std::string target = exporter_ ? fmt::format("{}:{}", host_name(), config.metrics_port) : std::string();
  std::vector<std::string> targets;
  for (const auto& [of_rank, problem_of_rank] : all_gather(mpi, std::pair(target, problem))) {
    if (!of_rank.empty()) targets.push_back(of_rank);
    if (!problem_of_rank.empty()) log.warn(problem_of_rank + "; training continues without the metrics of this node.");
  }
  if (config.metrics_sd_dir.empty() || mpi.rank() != 0) return;
  try {
    discovery_.emplace(config.metrics_sd_dir, setup.run.id, targets,
                       MetricLabels{{"model", config.model_type},
                                    {"slurm_job", parallel::process_environment("SLURM_JOB_ID").value_or("")}});
  } catch (const Error& error) {
    log.warn(fmt::format("--metrics_sd_dir: {}; training continues, and Prometheus does not learn of this run.",
                         error.what()));
  }
}

}  // namespace mpzero
