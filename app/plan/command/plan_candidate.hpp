#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/command/plan_estimate.hpp"

namespace mpzero::plan {

// What a candidate changes of the user's run.
struct PlanChoice {
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool node_a_host = false;  // two levels
  int64_t batch = 1, micro_batch = 1, accumulation = 1;
  std::string recompute;
};

// One way to train the same model with the same global batch.
struct PlanCandidate {
  PlanMachine machine;
  nlohmann::ordered_json ds_config;
  std::vector<std::string> contradicting;  // flags of the command line, with their values, that say otherwise
  std::string recompute;                   // --recompute
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool host_is_measured = true;  // else the host's AdamW time is an estimate
  parallel::ParallelLayout layout;
  PlanEstimate plan;
};

// "2 x p5.48xlarge".
std::string hosts_of(const PlanMachine& machine);
// Of all ranks together: batches may differ.
double seconds_of_token(const PlanCandidate& one);

// The plan of a choice. `line`: the flags of `mpzero train`; `base`: what they say. Throws MissingTimes, and UserError
// where the run would refuse it.
PlanCandidate evaluate(const CommandLine& line, const RunSetup& base, const PlanMachine& machine,
                       const Calibration& calibration, const PlanAssumptions& assumptions, const PlanChoice& choice);

}  // namespace mpzero::plan
