#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "parallel/mpi_runtime.hpp"
#include "parallel/nccl_communicator.hpp"
#include "parallel/network.hpp"
#include "parallel/network_proof.hpp"

namespace mpzero::parallel {

struct ProvenNetwork {
  std::vector<NetworkProof> proofs;  // by rank
  // Over all ranks, and what the proof is of: to be trained with, or kept until another is there. NCCL unloads its
  // plugin with the last communicator, and its releases 2.28 and 2.29 forget NCCL_NET_PLUGIN with it, so that the next
  // one would run over NCCL's default (https://github.com/NVIDIA/nccl/issues/1978).
  std::unique_ptr<NcclCommunicator> communicator;
};

// Starts NCCL over all ranks, sends a few bytes between them, and returns what each rank's NCCL said of its network.
// The current CUDA device is the rank's. Collective. Throws Failure on all ranks, one sentence, where
// NCCL runs over another network than `plan` asks for; on the rank that met it where NCCL does not start at all. Ends
// the process with one sentence where nothing arrives within `patience`, which is what a security group that lets
// nothing through looks like.
ProvenNetwork prove_network(const NetworkPlan& plan, MpiRuntime& mpi,
                            std::chrono::seconds patience = std::chrono::minutes(4));

// For the log: "Network: Libfabric (aws-ofi-nccl 1.16.2), provider efa, 32 devices, GPUDirect RDMA on all 16 ranks".
std::string describe_network(const std::vector<NetworkProof>& proofs);

// What the user should know of it, one sentence each: TCP, or data that passes host memory.
std::vector<std::string> network_warnings(const NetworkPlan& plan, const std::vector<NetworkProof>& proofs);

}  // namespace mpzero::parallel
