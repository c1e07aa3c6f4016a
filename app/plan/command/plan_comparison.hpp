#pragma once

#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/command/plan_candidate.hpp"
#include "app/plan/command/plan_options.hpp"

namespace mpzero::plan {

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

}  // namespace mpzero::plan
