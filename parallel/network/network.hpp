#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/process_group.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::parallel {

// A device for remote memory access, as listed by the kernel under /sys/class/infiniband.
struct RdmaDevice {
  std::string name;  // efa_0, rdmap16s27, mlx5_0
  bool efa = false;  // Amazon's Elastic Fabric Adapter
};

// The devices, sorted by name. `root`: the folder that contains /sys.
std::vector<RdmaDevice> rdma_devices(const std::filesystem::path& root = "/");

// The number of EFA devices among them.
int count_efa(const std::vector<RdmaDevice>& devices);

// The remedy if no data arrives, without a full stop.
inline constexpr const char* kUnconnectedRemedy =
    "the security group must allow all traffic to and from itself, and every node must reach every other; `mpzero "
    "doctor` checks each part";

// The user's choice of network between nodes: EFA if available, otherwise NCCL's choice; EFA; TCP.
enum class NetworkChoice { kAuto, kEfa, kSocket };

// "auto", "efa" or "socket". Throws UserError with `flag` for any other value.
NetworkChoice parse_network_choice(const std::string& flag, const std::string& value);

// One rank's view of its node before NCCL starts.
struct NodeNetwork {
  std::string host;  // for messages
  std::string node;  // the same for all ranks of one node, as NCCL defines nodes
  int efa_devices = 0;
  bool limits_channels = false;  // its environment sets NCCL's number of channels
};

// The environment that NCCL needs at its start, and the network that its log must prove.
struct NetworkPlan {
  enum class Proof { kNone, kEfa, kSocket, kAnything };

  bool several_nodes = false;
  Proof proof = Proof::kNone;  // kNone: one node, so that NCCL uses no network
  std::vector<std::pair<std::string, std::string>> settings;
  int min_channels = 0;  // of NCCL's communicators between nodes; see NcclCommunicator
};

// Reads the network of this rank's node. `root`: the folder that contains /proc and /sys.
NodeNetwork look_at_network(const Environment& environment, const std::string& root = "/");

// Plans for all `nodes` (one entry per rank), for the rank with entry `own`: variables that restrict NCCL to its
// network, and more connections over TCP. Does not plan variables that aws-ofi-nccl sets by instance type (FI_EFA_*,
// NCCL_PROTO, buffer sizes, topology, tuner). Throws UserError if the choice is impossible: no EFA device on a node, no
// plugin, or a contradicting variable.
NetworkPlan plan_network(NetworkChoice choice, const std::vector<NodeNetwork>& nodes, const NodeNetwork& own,
                         const Environment& environment,
                         const std::vector<std::string>& plugin_files = usual_plugin_files());

// look_at_network() on every rank, then plan_network(), then sets the planned variables in this process's environment.
// Collective; call it before the first NCCL communicator. Throws UserError on all ranks.
NetworkPlan choose_network(NetworkChoice choice, ProcessGroup& group);

}  // namespace mpzero::parallel
