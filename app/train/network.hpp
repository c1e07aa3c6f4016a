#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/network/network_start.hpp"

namespace mpzero {

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

  // A communicator over all ranks; between nodes the first one is the one that was proven. Collective.
  std::unique_ptr<parallel::Communicator> open_communicator();

 private:
  // Rank 0 prints a warning, once, if copy engines are not used.
  std::unique_ptr<parallel::Communicator> warned_of_hazard(std::unique_ptr<parallel::NcclCommunicator> communicator);

  parallel::MpiRuntime& mpi_;
  at::Device device_;
  std::unique_ptr<parallel::NcclCommunicator> proven_;
  bool warned_ = false;
};

}  // namespace mpzero
