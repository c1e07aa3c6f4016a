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

// Groups of ranks that communicate. kIntraNode: the ranks of a node. kInterNode: the ranks with the same local index in
// all nodes (see parallel::Levels). kSequence: the ranks that share sequences.
enum class Level : uint8_t { kIntraNode, kInterNode, kSequence };

// Communication between the ranks of a run: MPI for CPU tensors, NCCL for GPU tensors.
class Network {
 public:
  // Selects the network between hosts, initializes NCCL, verifies on every rank that NCCL uses this network, and prints
  // a line about the network on rank 0. On the CPU and on a single host, the constructor skips these steps.
  // `requested`: "auto" (EFA if the hosts have EFA devices), "efa" or "socket". Collective; the device must be current,
  // and `mpi` must outlive the network. Throws UserError or Failure if the requested network is not available, and
  // parallel::NetworkFailure if some ranks are known to be the cause.
  Network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi,
          const parallel::StartPatience& patience);

  int rank() const { return mpi_.rank(); }
  // Returns the verified network between hosts, "efa" or "socket". Returns an empty string for other networks, for
  // networks that differ between ranks, on a single host, and on the CPU. Valid only on rank 0.
  const std::string& proven() const { return proven_network_; }
  bool has_several_hosts() const { return mpi_.local_size() < mpi_.world_size(); }
  // Splits the ranks into nodes of consecutive ranks and into groups that share sequences. Collective.
  void divide(const parallel::ParallelLayout& layout);
  // Opens a communicator over this rank's group at `level`. Before divide(), all ranks form one node. On several hosts,
  // the first communicator over all ranks is the one that the constructor verified. Collective.
  std::unique_ptr<parallel::Communicator> open_communicator(Level level = Level::kIntraNode);

 private:
  // Warns on rank 0 if collectives on the CPU do not overlap with computation.
  void warn_without_thread() const;
  std::unique_ptr<parallel::Communicator> open_over(parallel::MpiRuntime& ranks, parallel::NcclEngine engine,
                                                    int min_channels);
  // Prints a warning once, on rank 0, if copy engines cannot be used.
  std::unique_ptr<parallel::Communicator> warned_of_hazard(std::unique_ptr<parallel::NcclCommunicator> communicator);

  parallel::MpiRuntime& mpi_;
  std::unique_ptr<parallel::MpiRuntime> node_;      // null if all ranks form one node
  std::unique_ptr<parallel::MpiRuntime> sequence_;  // null without sequence parallelism
  std::unique_ptr<parallel::MpiRuntime> place_;  // ranks with this rank's local index in all nodes; null with one node
  at::Device device_;
  std::unique_ptr<parallel::NcclCommunicator> proven_;
  std::string proven_network_;
  int min_channels_ = 0;  // minimum number of NCCL channels between hosts
  bool warned_ = false;
};

}  // namespace mpzero
