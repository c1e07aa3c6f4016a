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

// Within a node or between nodes; see parallel::Levels.
// kSequence: the ranks that share sequences.
enum class Level : uint8_t { kIntraNode, kInterNode, kSequence };

// How the ranks of a run communicate: MPI for tensors on the CPU, NCCL for those on GPUs.
class Network {
 public:
  // Chooses the network between nodes before NCCL starts, proves on every rank that NCCL uses it, and prints one line
  // about it on rank 0. A run on the CPU or on one node has no choice. `requested`: "auto", "efa" or "socket".
  // Collective; the device must be current, and `mpi` must outlive the network. Throws UserError or Failure, one
  // sentence, if the requested network is not available ("auto" requests EFA if the nodes have EFA devices);
  // parallel::NetworkFailure if some ranks are known to be the cause.
  Network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi,
          const parallel::StartPatience& patience);

  int rank() const { return mpi_.rank(); }
  // What the proof says of NCCL between hosts: "efa", "socket", or empty: another one, not the same on all ranks, no
  // proof (one host, the CPU). On rank 0 alone.
  const std::string& proven() const { return proven_network_; }
  bool has_several_hosts() const { return mpi_.local_size() < mpi_.world_size(); }
  // Divides the ranks into nodes, of consecutive ranks, and into those that share sequences, for open_communicator().
  // Collective.
  void divide(const parallel::ParallelLayout& layout);
  // Over the ranks of one node, or those at one place of all nodes, as this rank belongs to them. Before divide() all
  // ranks are one node. Between hosts the first one over all ranks is the one that was proven. Collective.
  std::unique_ptr<parallel::Communicator> open_communicator(Level level = Level::kIntraNode);

 private:
  // On the CPU, if collectives only run while nothing else does. Rank 0 prints it.
  void warn_without_thread() const;
  std::unique_ptr<parallel::Communicator> open_over(parallel::MpiRuntime& ranks, parallel::NcclEngine engine,
                                                    int min_channels);
  // Rank 0 prints a warning, once, if copy engines are not used.
  std::unique_ptr<parallel::Communicator> warned_of_hazard(std::unique_ptr<parallel::NcclCommunicator> communicator);

  parallel::MpiRuntime& mpi_;
  std::unique_ptr<parallel::MpiRuntime> node_;      // null: all ranks
  std::unique_ptr<parallel::MpiRuntime> sequence_;  // null without sequence parallelism
  std::unique_ptr<parallel::MpiRuntime> place_;  // the ranks at this rank's place of all nodes; null: this rank alone
  at::Device device_;
  std::unique_ptr<parallel::NcclCommunicator> proven_;
  std::string proven_network_;
  int min_channels_ = 0;  // between nodes
  bool warned_ = false;
};

}  // namespace mpzero
