#include "app/network.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "base/error.hpp"
#include "parallel/network_start.hpp"

namespace mpzero {

void start_network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi) {
  const parallel::NetworkChoice choice = parallel::parse_network_choice("network", requested);
  if (device.is_cpu()) {
    if (choice != parallel::NetworkChoice::kEfa) return;
    throw UserError("--network efa chooses how GPUs reach each other, but this run uses the CPU: leave it out",
                    ErrorScope::kAllRanks);
  }
  const parallel::NetworkPlan plan = parallel::choose_network(choice, mpi);
  if (!plan.several_nodes) return;
  const std::vector<parallel::NetworkProof> proofs = parallel::prove_network(plan, mpi);
  if (mpi.rank() != 0) return;
  fmt::print("{}\n", parallel::describe_network(proofs));
  std::fflush(stdout);
  for (const std::string& warning : parallel::network_warnings(plan, proofs)) {
    fmt::print(stderr, "mpzero: warning: {}\n", warning);
  }
}

}  // namespace mpzero
