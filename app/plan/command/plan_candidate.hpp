#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/command/plan_estimate.hpp"

namespace mpzero::plan {

// Settings that a candidate overrides in the user's run.
struct PlanChoice {
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool node_a_host = false;  // two levels: each node is one host
  int64_t batch = 1, micro_batch = 1, accumulation = 1;
  std::string recompute;
};

// One way to train the same model with the same global batch.
struct PlanCandidate {
  PlanMachine machine;
  nlohmann::ordered_json ds_config;
  std::vector<std::string> contradicting;  // command-line flags, with values, that contradict this candidate
  std::string recompute;                   // --recompute
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool host_is_measured = true;  // else the host's AdamW time is an estimate
  parallel::ParallelLayout layout;
  PlanEstimate plan;
};

// "2 x p5.48xlarge".
std::string hosts_of(const PlanMachine& machine);
// Step time per token of the global batch, since batches may differ.
double seconds_of_token(const PlanCandidate& one);

// The plan of a choice. `line`: the flags of `mpzero train`; `base`: the run that they configure. Throws MissingTimes,
// or UserError if the run would refuse the choice.
PlanCandidate evaluate(const CommandLine& line, const RunSetup& base, const PlanMachine& machine,
                       const Calibration& calibration, const PlanAssumptions& assumptions, const PlanChoice& choice);

}  // namespace mpzero::plan
