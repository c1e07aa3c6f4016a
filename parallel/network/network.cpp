#include "parallel/network/network.hpp"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "parallel/network/rdma_devices.hpp"

namespace mpzero::parallel {
namespace {

bool equal_ignoring_case(const std::string& a, const std::string& b) { return strcasecmp(a.c_str(), b.c_str()) == 0; }

// The value of --network: the flag as the user gave it or could have given it.
const char* as_given(NetworkChoice choice) { return choice == NetworkChoice::kEfa ? "efa" : "auto"; }

NetworkPlan plan_efa(NetworkChoice choice, const NodeNetwork& own, const Environment& environment,
                     const std::vector<std::string>& plugin_files) {
  NetworkPlan plan{.several_nodes = true, .proof = NetworkPlan::Proof::kEfa, .settings = {}};
  const auto net = environment("NCCL_NET");
  if (net && !is_libfabric_net(*net)) {
    throw_user_error(
        "NCCL_NET={} contradicts --network {} on {}, which has EFA: unset NCCL_NET, or give --network socket if TCP is "
        "really wanted",
        *net, as_given(choice), own.host);
  }
  const auto provider = environment("FI_PROVIDER");
  // libfabric takes a list, and "^" in front of what it must not use.
  if (provider && !provider->empty() && (provider->front() == '^') == (provider->find("efa") != std::string::npos)) {
    throw_user_error("FI_PROVIDER={} keeps libfabric from EFA, which --network {} uses on {}: unset it", *provider,
                     as_given(choice), own.host);
  }
  const PluginSearch search = find_libfabric_plugin(environment, plugin_files);
  if (!search.plugin) {
    throw_user_error(
        "{} has EFA, but NCCL cannot use it there: {}; install aws-ofi-nccl (it comes with the EFA installer) or put "
        "its folder into LD_LIBRARY_PATH, or give --network socket for TCP at less than half the speed",
        own.host, search.problem);
  }
  if (net && !equal_ignoring_case(*net, search.plugin->net_name)) {
    throw_user_error("NCCL_NET={} is not what {} calls its network, which is \"{}\": unset NCCL_NET", *net,
                     search.plugin->library, search.plugin->net_name);
  }
  // NCCL considers networks of this name alone, and fails where there is none.
  plan.settings.emplace_back("NCCL_NET", search.plugin->net_name);
  if (!search.plugin->by_default) plan.settings.emplace_back("NCCL_NET_PLUGIN", search.plugin->library);
  // libfabric, too, has a TCP provider to fall back to; and the plugin takes the protocol that it has for the instance
  // type only where this, if it is there at all, is "efa" and no longer list.
  if (provider.value_or("") != "efa") plan.settings.emplace_back("FI_PROVIDER", "efa");
  return plan;
}

// NCCL starts the network that NCCL_NET names on one node, too.
void check_one_node(const Environment& environment, const std::vector<std::string>& plugin_files) {
  const auto net = environment("NCCL_NET");
  if (!net || !is_libfabric_net(*net)) return;
  const PluginSearch search = find_libfabric_plugin(environment, plugin_files);
  if (search.plugin && search.plugin->by_default) return;
  throw_user_error(
      "NCCL_NET={} asks NCCL for a plugin that it will not find ({}): unset NCCL_NET, which nothing on one "
      "node needs",
      *net, search.plugin ? search.plugin->library + " is not in LD_LIBRARY_PATH" : search.problem);
}

// Over TCP NCCL opens two channels with one connection each, except on machines that it knows, and more carry several
// times as much (bench/RESULTS.md). With 16 connections EC2's limit for each, 5 to 10 Gb/s, is none for the host; with 32
// messages wait longer where packets are lost. A second thread for a channel gains nothing. What the user sets stays.
void open_more_sockets(const Environment& environment, NetworkPlan& plan) {
  // A least number that is asked for overrides NCCL's own most.
  const auto limited = [&](const char* name) { return environment(name).has_value(); };
  const char* const limits[] = {"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"};
  if (std::none_of(std::begin(limits), std::end(limits), limited)) plan.min_channels = 8;
  if (environment("NCCL_SOCKET_NTHREADS") || environment("NCCL_NSOCKS_PERTHREAD")) return;
  plan.settings.emplace_back("NCCL_SOCKET_NTHREADS", "1");
  plan.settings.emplace_back("NCCL_NSOCKS_PERTHREAD", "2");
}

NetworkPlan plan_socket(const Environment& environment) {
  if (const auto net = environment("NCCL_NET"); net && !equal_ignoring_case(*net, "Socket")) {
    throw_user_error("NCCL_NET={} contradicts --network socket: unset the one or leave out the other", *net);
  }
  NetworkPlan plan{.several_nodes = true, .proof = NetworkPlan::Proof::kSocket, .settings = {{"NCCL_NET", "Socket"}}};
  open_more_sockets(environment, plan);
  return plan;
}

std::string join(const std::set<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

const char* has(const std::set<std::string>& subjects) { return subjects.size() > 1 ? "have" : "has"; }

}  // namespace

NetworkChoice parse_network_choice(const std::string& flag, const std::string& value) {
  if (value == "auto") return NetworkChoice::kAuto;
  if (value == "efa") return NetworkChoice::kEfa;
  if (value == "socket") return NetworkChoice::kSocket;
  throw_user_error("--{} must be auto, efa or socket, not \"{}\".", flag, value);
}

NodeNetwork look_at_network(const Environment& environment, const std::string& root) {
  NodeNetwork own{.host = host_name(), .node = {}, .efa_devices = count_efa(rdma_devices(root))};
  // NCCL takes ranks with different NCCL_HOSTIDs for ranks of different nodes.
  own.node = environment("NCCL_HOSTID").value_or(own.host);
  return own;
}

NetworkPlan plan_network(NetworkChoice choice, const std::vector<NodeNetwork>& nodes, const NodeNetwork& own,
                         const Environment& environment, const std::vector<std::string>& plugin_files) {
  const bool several =
      std::any_of(nodes.begin(), nodes.end(), [&](const NodeNetwork& node) { return node.node != nodes.front().node; });
  if (!several) {
    check_one_node(environment, plugin_files);
    return {};
  }
  if (choice == NetworkChoice::kSocket) return plan_socket(environment);
  std::set<std::string> with, without;
  for (const NodeNetwork& node : nodes) (node.efa_devices > 0 ? with : without).insert(node.host);
  if (with.empty() && choice == NetworkChoice::kAuto) {
    NetworkPlan plan{.several_nodes = true, .proof = NetworkPlan::Proof::kAnything, .settings = {}};
    open_more_sockets(environment, plan);
    return plan;
  }
  if (with.empty()) {
    throw_user_error(
        "--network efa: {} {} no EFA device; start instances with EFA interfaces and the EFA driver (fi_info -p efa "
        "lists them), or give --network socket",
        join(without), has(without));
  }
  if (!without.empty()) {
    throw_user_error(
        "{} {} EFA and {} {} not, so that NCCL would use TCP on all nodes: leave {} out (sbatch --exclude), attach "
        "EFA interfaces there, or give --network socket",
        join(with), has(with), join(without), has(without), join(without));
  }
  return plan_efa(choice, own, environment, plugin_files);
}

NetworkPlan choose_network(NetworkChoice choice, ProcessGroup& group) {
  const NodeNetwork own = look_at_network(process_environment);
  std::vector<NodeNetwork> nodes;
  for (const auto& [host, node, efa_devices] : all_gather(group, std::tuple(own.host, own.node, own.efa_devices))) {
    nodes.push_back({.host = host, .node = node, .efa_devices = efa_devices});
  }
  NetworkPlan plan;
  run_on_all_ranks(group, [&] { plan = plan_network(choice, nodes, own, process_environment); });
  for (const auto& [name, value] : plan.settings) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  return plan;
}

}  // namespace mpzero::parallel
