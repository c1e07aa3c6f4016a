#include "app/train/communicators/network.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/output.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"

namespace mpzero {

Network::Network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi,
                 const parallel::StartPatience& patience)
    : mpi_(mpi), device_(device) {
  const parallel::NetworkChoice choice = parallel::parse_network_choice("network", requested);
  if (device.is_cpu()) {
    if (choice == parallel::NetworkChoice::kEfa) {
      throw UserError("--network efa has no effect on the CPU; remove the flag", ErrorScope::kAllRanks);
    }
    warn_without_thread();
    return;
  }
  const parallel::NetworkPlan plan = parallel::choose_network(choice, mpi);
  if (!plan.several_nodes) return;
  min_channels_ = plan.min_channels;
  parallel::ProvenNetwork network = parallel::prove_network(plan, mpi, patience);
  proven_ = std::move(network.communicator);
  if (mpi.rank() != 0) return;
  proven_network_ = parallel::network_of(network.proofs);
  print_out("{}\n", parallel::describe_network(network.proofs));
  for (const std::string& warning : parallel::network_warnings(plan, network.proofs)) {
    print_warning(warning);
  }
}

void Network::warn_without_thread() const {
  if (mpi_.rank() != 0 || mpi_.communication_thread().runs_beside() || mpi_.world_size() == 1) return;
  print_warning(
      fmt::format("communication does not overlap with computation: {}",
                  mpi_.lacks_threads()
                      ? "MPI lacks MPI_THREAD_MULTIPLE; build mpzero with an MPI library that supports it"
                      : "MPI was started in GPU mode because a host has NVIDIA's driver loaded; pass --device cpu"));
}

void Network::divide(const parallel::ParallelLayout& layout) {
  if (layout.sequence_ranks > 1) sequence_ = mpi_.split(mpi_.rank() / layout.sequence_ranks);
  if (layout.nodes == 1) return;
  node_ = mpi_.split(mpi_.rank() / layout.ranks_per_node);
  place_ = mpi_.split(mpi_.rank() % layout.ranks_per_node);
  // proven_ spans all ranks; with several nodes, no communicator needs all ranks.
  if (layout.ranks_per_node > 1) proven_.reset();
}

std::unique_ptr<parallel::Communicator> Network::open_communicator(Level level) {
  // Collectives on copy engines require a single node, even if several nodes share a host.
  if (level == Level::kInterNode) return open_over(*place_, parallel::NcclEngine::kKernels, min_channels_);
  if (level == Level::kSequence) return open_over(*sequence_, parallel::NcclEngine::kKernels, min_channels_);
  if (node_) return open_over(*node_, parallel::NcclEngine::kCopyEngines, /*min_channels=*/0);
  return open_over(mpi_, parallel::NcclEngine::kCopyEngines, min_channels_);
}

std::unique_ptr<parallel::Communicator> Network::open_over(parallel::MpiRuntime& ranks, parallel::NcclEngine engine,
                                                           int min_channels) {
  if (ranks.world_size() == 1) return std::make_unique<parallel::LocalCommunicator>();
  if (proven_) return warned_of_hazard(std::move(proven_));
  if (device_.is_cpu()) return std::make_unique<parallel::MpiCommunicator>(ranks);
  return warned_of_hazard(std::make_unique<parallel::NcclCommunicator>(ranks, engine, min_channels));
}

std::unique_ptr<parallel::Communicator> Network::warned_of_hazard(
    std::unique_ptr<parallel::NcclCommunicator> communicator) {
  if (communicator->hazard() && mpi_.rank() == 0 && !std::exchange(warned_, true)) {
    print_warning(*communicator->hazard());
  }
  return communicator;
}

}  // namespace mpzero
