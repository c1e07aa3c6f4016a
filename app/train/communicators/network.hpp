#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/network/network_start.hpp"
#include "parallel/zero/levels.hpp"

namespace mpzero {

// The ranks within a node, or at the same place in all nodes: see parallel::Levels. kSequence: the ranks that share
// sequences.
enum class Level : uint8_t { kIntraNode, kInterNode, kSequence };

// Communication between the ranks of a run: MPI for CPU tensors, NCCL for GPU tensors.
class Network {
 public:
  // Chooses the network between hosts before NCCL starts, verifies on every rank that NCCL uses it, and prints a line
  // about it on rank 0. Runs on the CPU or on one host have no choice. `requested`: "auto", "efa" or "socket".
  // Collective; the device must be current, and `mpi` must outlive the network. Throws UserError or Failure, one
  // sentence, if the requested network is not available ("auto" requests EFA if the hosts have EFA devices);
  // parallel::NetworkFailure if some ranks are known to be the cause.
  Network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi,
          const parallel::StartPatience& patience);

  int rank() const { return mpi_.rank(); }
  // NCCL's verified network between hosts: "efa" or "socket". Empty: another network, different networks on different
  // ranks, or not verified (one host, the CPU). Only on rank 0.
  const std::string& proven() const { return proven_network_; }
  bool has_several_hosts() const { return mpi_.local_size() < mpi_.world_size(); }
  // Splits the ranks into nodes of consecutive ranks, and into groups that share sequences, for open_communicator().
  // Collective.
  void divide(const parallel::ParallelLayout& layout);
  // Opens this rank's communicator of a level: over its node, over its place in all nodes, or over the ranks that share
  // its sequences. Before divide(), all ranks are one node. Between hosts, the first communicator over all ranks is the
  // verified one. Collective.
  std::unique_ptr<parallel::Communicator> open_communicator(Level level = Level::kIntraNode);

 private:
  // On rank 0: warns if collectives on the CPU do not overlap with computation.
  void warn_without_thread() const;
  std::unique_ptr<parallel::Communicator> open_over(parallel::MpiRuntime& ranks, parallel::NcclEngine engine,
                                                    int min_channels);
  // Prints a warning once, on rank 0, if copy engines are not used.
  std::unique_ptr<parallel::Communicator> warned_of_hazard(std::unique_ptr<parallel::NcclCommunicator> communicator);

  parallel::MpiRuntime& mpi_;
  std::unique_ptr<parallel::MpiRuntime> node_;      // null: all ranks
  std::unique_ptr<parallel::MpiRuntime> sequence_;  // null without sequence parallelism
  std::unique_ptr<parallel::MpiRuntime> place_;     // ranks at this rank's place in all nodes; null: this rank alone
  at::Device device_;
  std::unique_ptr<parallel::NcclCommunicator> proven_;
  std::string proven_network_;
  int min_channels_ = 0;  // between hosts
  bool warned_ = false;
};

}  // namespace mpzero
