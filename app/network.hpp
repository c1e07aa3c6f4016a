#pragma once

#include <c10/core/Device.h>

#include <string>

#include "parallel/mpi_runtime.hpp"

namespace mpzero {

// Chooses the network between nodes before NCCL starts, proves on every rank that NCCL runs over it, and lets rank 0
// say in one line what it is; a run on the CPU or on one node has nothing to choose. `requested`: "auto", "efa" or
// "socket". Collective; the device is current. Throws UserError or Failure, one sentence, where the network asked for
// cannot be had: with "auto" that is EFA wherever the nodes have EFA devices.
void start_network(const std::string& requested, const at::Device& device, parallel::MpiRuntime& mpi);

}  // namespace mpzero
