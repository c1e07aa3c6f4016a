#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/estimate/plan_estimate.hpp"

namespace mpzero::plan {

// Settings of the user's run that a candidate overrides.
struct PlanChoice {
  int stage = 0;
  bool offload_optimizer = false, offload_param = false;
  bool node_a_host = false;  // two levels of ZeRO, with one shard group per host
  int64_t batch = 1, micro_batch = 1, accumulation = 1;
  Recomputation recompute = Recomputation::kAuto;
};

// A configuration that trains the same model with the same global batch.
struct PlanCandidate {
  PlanMachine machine;
  nlohmann::ordered_json ds_config;
  std::vector<std::string> contradicting;  // command-line flags, with values, that conflict with this candidate
  std::string recompute;                   // value of --recompute
  PlanChoice choice;
  bool host_is_measured = true;  // false: AdamW's time on the host is an estimate
  parallel::ParallelLayout layout = {};
  PlanEstimate plan = {};
  std::optional<double> clipped_seconds = {};  // see clipped_seconds()
};

// Returns the hosts as text, e.g. "2 x p5.48xlarge".
std::string hosts_of(const PlanMachine& machine);
// Returns the step time per token of the global batch, to compare candidates with different batch sizes.
double seconds_of_token(const PlanCandidate& one);

// Plans the run with `choice`. `line`: flags of `mpzero train`. `base`: run configured by these flags. Throws
// MissingTimes if the calibration lacks times, and UserError if `mpzero train` would reject the configuration.
PlanCandidate evaluate(const CommandLine& line, const RunSetup& base, const PlanMachine& machine,
                       const Calibration& calibration, const PlanAssumptions& assumptions, const PlanChoice& choice);

}  // namespace mpzero::plan
