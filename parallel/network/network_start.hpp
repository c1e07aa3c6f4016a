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

// NCCL does not run as the plan asks for; `culprits` are the ranks on whose hosts it does not.
class NetworkFailure final : public Error {
 public:
  NetworkFailure(const std::string& message, ErrorScope scope, std::vector<int> culprits)
      : Error(message, scope), culprits_(std::move(culprits)) {}
  int exit_code() const override { return kFailureExitCode; }
  const std::vector<int>& culprits() const { return culprits_; }

 private:
  std::vector<int> culprits_;
};

// What to do where nothing arrives, without a full stop.
inline constexpr const char* kUnconnectedRemedy =
    "the security group must allow all traffic to and from itself, and every node must reach every other; `mpzero "
    "doctor` looks at each part";

// Ends the process with one sentence, which begins with `words` and goes on with the remedy.
void end_unconnected(const std::string& words);

// How long NCCL may take to connect the nodes.
struct StartPatience {
  std::chrono::milliseconds limit = std::chrono::minutes(4);  // 0: for ever
  // Is told what NCCL has come to once that is over: "NCCL on node7 has had no answer over "Libfabric"". On a thread of
  // its own.
  std::function<void(const std::string& words)> overdue = end_unconnected;
};

struct ProvenNetwork {
  std::vector<NetworkProof> proofs;  // by rank
  // Over all ranks, and what the proof is of: to be trained with, or kept until another is there. NCCL unloads its
  // plugin with the last communicator, and its releases 2.28 and 2.29 forget NCCL_NET_PLUGIN with it, so that the next
  // one would run over NCCL's default (https://github.com/NVIDIA/nccl/issues/1978).
  std::unique_ptr<NcclCommunicator> communicator;
};

// Starts NCCL over all ranks, sends a few bytes between them, and returns what each rank's NCCL said of its network.
// The current CUDA device is the rank's. Collective. Throws NetworkFailure on all ranks, one sentence, where NCCL runs
// over another network than `plan` asks for on one of them; on the rank that met it where NCCL does not start for lack
// of its network; Failure there where it does not for another reason. Nothing arrives at all within `patience`
// where a security group lets nothing through.
ProvenNetwork prove_network(const NetworkPlan& plan, MpiRuntime& mpi, const StartPatience& patience = {});

// For the log: "Network: Libfabric (aws-ofi-nccl 1.16.2), provider efa, 32 devices, GPUDirect RDMA on all 16 ranks".
std::string describe_network(const std::vector<NetworkProof>& proofs);

// What the user should know of it, one sentence each: TCP, or data that passes host memory.
std::vector<std::string> network_warnings(const NetworkPlan& plan, const std::vector<NetworkProof>& proofs);

}  // namespace mpzero::parallel
