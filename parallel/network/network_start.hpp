#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/network/network.hpp"
#include "parallel/network/network_proof.hpp"

namespace mpzero::parallel {

// NCCL does not run over the planned network; `culprits`: the ranks of affected hosts.
class NetworkFailure final : public Error {
 public:
  NetworkFailure(const std::string& message, ErrorScope scope, std::vector<int> culprits)
      : Error(message, scope), culprits_(std::move(culprits)) {}
  int exit_code() const override { return kFailureExitCode; }
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  std::vector<int> culprits_;
};

// Ends the process with one sentence: `message` followed by the remedy.
void end_unconnected(const std::string& message);

// Timeout for NCCL to connect the nodes.
struct StartPatience {
  std::chrono::milliseconds limit = std::chrono::minutes(4);  // 0: forever
  // Called on a separate thread after the limit, with NCCL's state: "no answer from NCCL on node7 over "Libfabric"".
  std::function<void(const std::string& message)> overdue = end_unconnected;
};

struct ProvenNetwork {
  std::vector<NetworkProof> proofs;  // by rank
  // The proven communicator over all ranks: for training, or to keep until another one exists. NCCL unloads its plugin
  // with the last communicator, and releases 2.28 and 2.29 then forget NCCL_NET_PLUGIN, so that the next communicator
  // would use NCCL's default network (https://github.com/NVIDIA/nccl/issues/1978).
  std::unique_ptr<NcclCommunicator> communicator;
};

// Starts NCCL over all ranks, sends a few bytes between them, and returns each rank's network as logged by NCCL. Uses
// the rank's current CUDA device. Collective. Throws NetworkFailure, one sentence: on all ranks if NCCL uses another
// network than `plan` requires on any rank; only on the affected rank if NCCL's network does not start. Throws Failure
// there if NCCL does not start for another reason. Calls patience.overdue if no data arrives in time, as when a
// security group blocks all traffic.
ProvenNetwork prove_network(const NetworkPlan& plan, MpiRuntime& mpi, const StartPatience& patience = {});

// For the log: "Network: Libfabric (aws-ofi-nccl 1.16.2), provider efa, 32 devices, GPUDirect RDMA on all 16 ranks".
std::string describe_network(const std::vector<NetworkProof>& proofs);

// The network as a value of --network: "efa" or "socket"; empty for another network, or for different ones.
std::string network_of(const std::vector<NetworkProof>& proofs);

// Warnings for the user, one sentence each: TCP, or data that passes through host memory.
std::vector<std::string> network_warnings(const NetworkPlan& plan, const std::vector<NetworkProof>& proofs);

}  // namespace mpzero::parallel
