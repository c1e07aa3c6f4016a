#pragma once

#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/command/plan_candidate.hpp"
#include "app/plan/command/plan_options.hpp"

namespace mpzero::plan {

struct PlanComparison {
  std::vector<PlanCandidate> ranked;  // those that fit, the fastest first
  std::vector<std::string> asked;     // requested hosts, as in hosts_of()
  int64_t train_batch_size = 0;       // requested
  int64_t tried = 0;
  int64_t without_times = 0;          // configurations that fit, but no calibration has their kernel times
  int64_t refused = 0;                // configurations that `mpzero train` would refuse
  std::vector<std::string> left_out;  // skipped instances and configurations, with reasons
  std::vector<std::string> warnings;  // for the user, one line each
};

// Tries ZeRO stages, offload, layouts, micro-batches and recomputation on `asked` and, if that is a single instance
// type, on as many GPUs of every other type with a calibration. Tries offload only if a configuration does not fit or
// recomputes without it. Several `asked` hosts are compared only with each other, each with the global batch rounded up
// to a multiple of its ranks. Micro-batches are divisors of a rank's share of the batch, each at least 1.5 times the
// previous one, as long as one fits. `line`: the flags of `mpzero train`; `setup`: the run that they configure on the
// first hosts that the batch suits.
PlanComparison compare_plans(const CommandLine& line, const RunSetup& setup, const std::vector<PlanMachine>& asked,
                             const PlanOptions& options);

}  // namespace mpzero::plan
