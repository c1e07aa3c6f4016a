#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/process_group.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::parallel {

// What the user asks of the network between nodes: EFA where there is any and otherwise what NCCL finds; EFA; TCP.
enum class NetworkChoice { kAuto, kEfa, kSocket };

// "auto", "efa" or "socket". Throws UserError naming `flag` for any other word.
NetworkChoice parse_network_choice(const std::string& flag, const std::string& word);

// What one rank knows of its node before NCCL starts.
struct NodeNetwork {
  std::string host;  // for messages
  std::string node;  // ranks of one node, as NCCL counts nodes, have the same
  int efa_devices = 0;
};

// What has to be in the environment before NCCL starts, and what its log has to prove afterwards.
struct NetworkPlan {
  enum class Proof { kNone, kEfa, kSocket, kAnything };

  bool several_nodes = false;
  Proof proof = Proof::kNone;  // kNone: one node, so that NCCL uses no network
  std::vector<std::pair<std::string, std::string>> settings;
};

// Reads the network of this rank's node. `root`: where /proc and /sys are.
NodeNetwork look_at_network(const Environment& environment, const std::string& root = "/");

// Plans for all `nodes`, one entry a rank, as seen from the rank whose entry is `own`. Only variables that make NCCL
// strict about its network are planned; what aws-ofi-nccl sets for the instance type (FI_EFA_*, NCCL_PROTO, buffer
// sizes, topology, tuner) is left to it. Throws UserError where the choice cannot be had: no EFA device on a node, no
// plugin, or a variable that contradicts it.
NetworkPlan plan_network(NetworkChoice choice, const std::vector<NodeNetwork>& nodes, const NodeNetwork& own,
                         const Environment& environment,
                         const std::vector<std::string>& plugin_files = usual_plugin_files());

// look_at_network() on every rank, then plan_network(), then the settings put into this process's environment.
// Collective; call it before the first NCCL communicator. Throws UserError on all ranks.
NetworkPlan choose_network(NetworkChoice choice, ProcessGroup& group);

}  // namespace mpzero::parallel
