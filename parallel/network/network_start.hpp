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

// NCCL does not run over the planned network; `culprits` are the ranks on whose hosts it does not.
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

// How long NCCL may take to connect the nodes.
struct StartPatience {
  std::chrono::milliseconds limit = std::chrono::minutes(4);  // 0: forever
  // Called after the limit with the state of NCCL: "NCCL on node7 has had no answer over "Libfabric"". On a separate
  // thread.
  std::function<void(const std::string& message)> overdue = end_unconnected;
};

struct ProvenNetwork {
  std::vector<NetworkProof> proofs;  // by rank
  // Over all ranks, the communicator that the proof is about: for training, or to be kept until another one exists.
  // NCCL unloads its plugin with the last communicator, and its releases 2.28 and 2.29 then forget NCCL_NET_PLUGIN, so
  // that the next one would run over NCCL's default (https://github.com/NVIDIA/nccl/issues/1978).
  std::unique_ptr<NcclCommunicator> communicator;
};

// Starts NCCL over all ranks, sends a few bytes between them, and returns what each rank's NCCL logged about its
// network. Uses the rank's current CUDA device. Collective. Throws NetworkFailure, one sentence: on all ranks if NCCL
// runs over another network than `plan` requires on one of them; only on the affected rank if NCCL does not start
// because of its network. Throws Failure there if NCCL does not start for another reason. If a security group blocks
// all traffic, no data arrives within `patience`.
ProvenNetwork prove_network(const NetworkPlan& plan, MpiRuntime& mpi, const StartPatience& patience = {});

// For the log: "Network: Libfabric (aws-ofi-nccl 1.16.2), provider efa, 32 devices, GPUDirect RDMA on all 16 ranks".
std::string describe_network(const std::vector<NetworkProof>& proofs);

// As --network says it: "efa" or "socket"; empty: another network, or not the same one on all ranks.
std::string network_of(const std::vector<NetworkProof>& proofs);

// Warnings for the user, one sentence each: TCP, or data that passes through host memory.
std::vector<std::string> network_warnings(const NetworkPlan& plan, const std::vector<NetworkProof>& proofs);

}  // namespace mpzero::parallel
