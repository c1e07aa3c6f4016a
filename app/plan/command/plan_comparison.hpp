#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/command/plan_estimate.hpp"
#include "app/plan/command/plan_options.hpp"

namespace mpzero::plan {

// One way to train the same model with the same global batch.
struct PlanCandidate {
  PlanMachine machine;
  nlohmann::ordered_json ds_config;
  std::vector<std::string> contradicting;  // flags of the command line, with their values, that say otherwise
  std::string recompute;                   // --recompute
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool host_is_measured = true;  // else AdamW there is an estimate
  parallel::ParallelLayout layout;
  PlanEstimate plan;
};

struct PlanComparison {
  std::vector<PlanCandidate> ranked;  // those that fit, the fastest first
  std::vector<std::string> asked;     // hosts that the user named, as hosts_of() says
  int64_t train_batch_size = 0;       // asked for
  int64_t tried = 0;
  int64_t without_times = 0;          // that fit, but need times that no calibration has
  int64_t refused = 0;                // that `mpzero train` would refuse
  std::vector<std::string> left_out;  // instances of the table and configurations without times, and why
  std::vector<std::string> warnings;  // for the user, one line each
};

// Tries ZeRO stages, offload, layouts, micro-batches and recomputation on `asked` and, where that is one instance, on
// as many GPUs of the other types that there is a calibration for. Offloading is tried where a configuration does not
// fit or recomputes without it. Of several `asked` hosts these alone are compared, each with the global batch or, where
// its ranks do not divide that, the next one that they do. Micro-batches are divisors of a rank's part of the batch,
// each at least 1.5 times the one before, as long as one fits. `line`: the flags of `mpzero train`; `setup`: what they
// say on the first hosts that they suit.
PlanComparison compare_plans(const CommandLine& line, const RunSetup& setup, const std::vector<PlanMachine>& asked,
                             const PlanOptions& options);

// `tokens`: of the whole training; 0: not known. A table, then the ds_config.json of the fastest on the asked hosts
// and, where others are faster, of the fastest of all.
std::vector<std::string> describe_comparison(const PlanComparison& comparison, double tokens);
nlohmann::ordered_json comparison_json(const PlanComparison& comparison, double tokens);

}  // namespace mpzero::plan
