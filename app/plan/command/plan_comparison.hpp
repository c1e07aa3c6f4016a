#pragma once

#include <string>
#include <vector>

#include "app/flags/options.hpp"
#include "app/plan/command/plan_candidate.hpp"
#include "app/plan/command/plan_options.hpp"

namespace mpzero::plan {

struct PlanComparison {
  std::vector<PlanCandidate> ranked;  // configurations that fit, fastest first
  std::vector<std::string> asked;     // requested hosts, formatted by hosts_of()
  int64_t train_batch_size = 0;       // requested global batch
  int64_t tried = 0;
  int64_t without_times = 0;          // configurations that fit but have no calibrated kernel times
  int64_t refused = 0;                // configurations that `mpzero train` would reject
  std::vector<std::string> left_out;  // skipped instances and configurations, with reasons
  std::vector<std::string> warnings;  // one line each
};

// Compares ZeRO stages, offload, layouts, micro-batches and recomputation on the hosts `asked`. For --instance, also
// compares the same number of GPUs of every other calibrated type. Offload is tried only for configurations
// that, without offload, do not fit or need recomputation. If `asked` has several entries, only these entries are
// compared, each with the global batch rounded up to a multiple of its number of ranks. Micro-batches are divisors of a
// rank's share of the batch, each at least 1.5 times the previous one, up to the largest that fits. `line`: flags of
// `mpzero train`. `setup`: run configured by these flags on the first entry of `asked` whose number of ranks divides
// the global batch size.
PlanComparison compare_plans(const CommandLine& line, const RunSetup& setup, const std::vector<PlanMachine>& asked,
                             const PlanOptions& options);

}  // namespace mpzero::plan
