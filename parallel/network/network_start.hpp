#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rank_failure.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/mpi_runtime.hpp"
#include "parallel/network/network.hpp"
#include "parallel/network/network_proof.hpp"

namespace mpzero::parallel {

// Thrown if NCCL does not use the planned network. `culprits`: the ranks on affected hosts.
class NetworkFailure final : public RankFailure {
 public:
  using RankFailure::RankFailure;
};

// Prints `message` and a remedy (kUnconnectedRemedy), then ends the process.
void end_unconnected(const std::string& message);

// Timeout for NCCL to connect the nodes.
struct StartPatience {
  std::chrono::milliseconds limit = std::chrono::minutes(4);  // 0: no timeout
  // Called on a separate thread after the timeout, with NCCL's state, e.g. "NCCL initialization timed out on
  // node7 over "Libfabric"".
  std::function<void(const std::string& message)> overdue = end_unconnected;
};

struct ProvenNetwork {
  std::vector<NetworkProof> proofs;  // one per rank
  // Communicator over all ranks, for training. This communicator must be kept until another communicator exists,
  // because NCCL unloads its plugin with the last communicator. After the plugin is unloaded, NCCL 2.28 and 2.29 ignore
  // NCCL_NET_PLUGIN and use the default network for the next communicator (https://github.com/NVIDIA/nccl/issues/1978).
  std::unique_ptr<NcclCommunicator> communicator;
};

// Starts NCCL over all ranks, exchanges a few bytes, and returns each rank's network as logged by NCCL. Uses the rank's
// current CUDA device. Must be called by all ranks. Throws NetworkFailure on all ranks if any rank uses a network that
// differs from `plan`, and only on the affected rank if NCCL cannot initialize its network. Throws Failure on the
// affected rank if NCCL fails for any other reason. Calls patience.overdue if data does not arrive in time, e.g. if a
// security group blocks all traffic.
ProvenNetwork prove_network(const NetworkPlan& plan, MpiRuntime& mpi, const StartPatience& patience = {});

// Formats the network for the log: "Network: Libfabric (aws-ofi-nccl 1.16.2), provider efa, 32 devices, GPUDirect RDMA
// on all 16 ranks".
std::string describe_network(const std::vector<NetworkProof>& proofs);

// Returns the network as a value of --network ("efa" or "socket"), or an empty string if the ranks use different
// networks, or a network other than EFA and TCP.
std::string network_of(const std::vector<NetworkProof>& proofs);

// Returns warnings for the user, one sentence each, about TCP and about transfers through host memory.
std::vector<std::string> network_warnings(const NetworkPlan& plan, const std::vector<NetworkProof>& proofs);

}  // namespace mpzero::parallel
