#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/network/network_start.hpp"

namespace mpzero {

// How the ranks of a run reach each other: MPI for tensors on the CPU, NCCL for those on GPUs.
class Network {
 public:
  // Chooses the network between nodes before NCCL starts, proves on every rank that NCCL runs over it, and lets rank 0
  // say in one line what it is; a run on the CPU or on one node has nothing to choose. `requested`: "auto", "efa" or
  // "socket". Collective; the device is current, and `mpi` outlives the network. Throws UserError or Failure, one
  // sentence, where the network asked for cannot be had: with "auto" that is EFA wherever the nodes have EFA devices;
  // parallel::NetworkFailure where some ranks are known to be the cause.
  Network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi,
          const parallel::StartPatience& patience);

  // Over all ranks; between nodes the first is the one that the proof is of. Collective.
  std::unique_ptr<parallel::Communicator> open_communicator();

 private:
  // Rank 0 says, once, why copy engines are not used.
  std::unique_ptr<parallel::Communicator> warned_of_hazard(std::unique_ptr<parallel::NcclCommunicator> communicator);

  parallel::MpiRuntime& mpi_;
  at::Device device_;
  std::unique_ptr<parallel::NcclCommunicator> proven_;
  bool warned_ = false;
};

}  // namespace mpzero
