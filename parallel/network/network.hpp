#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/process_group.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::parallel {

// RDMA device listed by the kernel under /sys/class/infiniband.
struct RdmaDevice {
  std::string name;  // efa_0, rdmap16s27, mlx5_0
  bool efa = false;  // Amazon's Elastic Fabric Adapter
};

// Returns the RDMA devices, sorted by name. `root`: the folder that contains sys.
std::vector<RdmaDevice> rdma_devices(const std::filesystem::path& root = "/");

int count_efa(const std::vector<RdmaDevice>& devices);

// Remedy to print if nodes cannot exchange data, without the final period.
inline constexpr const char* kUnconnectedRemedy =
    "the security group must allow all traffic to and from itself, and all nodes must be able to connect to each "
    "other; run `mpzero doctor`";

// Network between nodes. kAuto: EFA if available, otherwise NCCL's default. kSocket: TCP.
enum class NetworkChoice { kAuto, kEfa, kSocket };

// Parses "auto", "efa" or "socket". Throws UserError with `flag` for other values.
NetworkChoice parse_network_choice(const std::string& flag, const std::string& value);

// Properties of one rank's node and its network, detected before NCCL starts.
struct NodeNetwork {
  std::string host;  // host name in messages
  std::string node;  // node identifier as defined by NCCL, the same for all ranks of a node
  int efa_devices = 0;
  bool limits_channels = false;  // the environment sets NCCL's number of channels
};

// Environment variables to set for NCCL, and the network that NCCL's log must confirm.
struct NetworkPlan {
  enum class Proof { kNone, kEfa, kSocket, kAnything };

  bool several_nodes = false;
  Proof proof = Proof::kNone;  // kNone: a single node, on which NCCL uses no network
  std::vector<std::pair<std::string, std::string>> settings;
  int min_channels = 0;  // NCCL channels between nodes; see NcclCommunicator
};

// Detects the network of this rank's node. `root`: the folder that contains proc and sys.
NodeNetwork look_at_network(const Environment& environment, const std::string& root = "/");

// Returns the plan for the rank with entry `own` in `nodes` (one entry per rank): environment variables that restrict
// NCCL to the chosen network, and additional connections over TCP. Does not set variables that aws-ofi-nccl sets by
// instance type (FI_EFA_*, NCCL_PROTO, buffer sizes, topology, tuner). Throws UserError if the chosen network cannot be
// used because a node has no EFA devices, the plugin is missing, or an environment variable conflicts with this choice.
NetworkPlan plan_network(NetworkChoice choice, const std::vector<NodeNetwork>& nodes, const NodeNetwork& own,
                         const Environment& environment,
                         const std::vector<std::string>& plugin_files = usual_plugin_files());

// Runs look_at_network() and plan_network() on every rank and sets the planned variables in this process's environment.
// Must be called by all ranks, before the first NCCL communicator is created. Throws UserError on all ranks if
// plan_network() throws on any rank.
NetworkPlan choose_network(NetworkChoice choice, ProcessGroup& group);

}  // namespace mpzero::parallel
