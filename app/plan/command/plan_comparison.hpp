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
  std::string asked;                  // the machine that the user named
  int64_t tried = 0;
  int64_t without_times = 0;          // that fit, but need times that no calibration has
  std::vector<std::string> left_out;  // instances of the table and configurations without times, and why
  std::vector<std::string> warnings;  // for the user, one line each
};

// Tries ZeRO stages, offload, layouts, micro-batches and recomputation on `machine` and, where that is an instance, on
// as many GPUs of the other types that there is a calibration for. Offloading is tried where a configuration does not
// fit or recomputes without it. Micro-batches are divisors of a rank's part of the batch, each at least 1.5 times the
// one before, as long as one fits. `line`: the flags of `mpzero train`; `setup`: what they say on `machine`.
PlanComparison compare_plans(const CommandLine& line, const RunSetup& setup, const PlanMachine& machine,
                             const PlanOptions& options);

// `tokens`: of the whole training. A table, then the ds_config.json of the fastest and the flags that go with it.
std::vector<std::string> describe_comparison(const PlanComparison& comparison, double tokens);
nlohmann::ordered_json comparison_json(const PlanComparison& comparison);

}  // namespace mpzero::plan
