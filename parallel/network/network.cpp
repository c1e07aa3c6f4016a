#include "parallel/network/network.hpp"

#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>
#include <tuple>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"

namespace mpzero::parallel {
namespace {

namespace fs = std::filesystem;

// Checks the driver, because the device name (efa_0, rdmap16s27) depends on the system's naming rules.
bool is_efa(const fs::path& device) {
  if (device.filename().string().rfind("efa", 0) == 0) return true;
  std::error_code error;
  return fs::read_symlink(device / "device" / "driver", error).filename() == "efa";
}

}  // namespace

std::vector<RdmaDevice> rdma_devices(const fs::path& root) {
  std::vector<RdmaDevice> devices;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "sys/class/infiniband", error)) {
    devices.push_back({.name = entry.path().filename().string(), .efa = is_efa(entry.path())});
  }
  std::sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return devices;
}

int count_efa(const std::vector<RdmaDevice>& devices) {
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [](const auto& device) { return device.efa; }));
}

namespace {

bool equal_ignoring_case(const std::string& a, const std::string& b) { return strcasecmp(a.c_str(), b.c_str()) == 0; }

// Returns the value of --network, or its default.
const char* as_given(NetworkChoice choice) { return choice == NetworkChoice::kEfa ? "efa" : "auto"; }

NetworkPlan plan_efa(NetworkChoice choice, const NodeNetwork& own, const Environment& environment,
                     const std::vector<std::string>& plugin_files) {
  NetworkPlan plan{.several_nodes = true, .proof = NetworkPlan::Proof::kEfa, .settings = {}};
  const auto net = environment("NCCL_NET");
  if (net && !is_libfabric_net(*net)) {
    throw_user_error(
        "NCCL_NET={} conflicts with --network {} on {}, which has EFA; unset NCCL_NET, or pass --network socket for "
        "TCP",
        *net, as_given(choice), own.host);
  }
  const auto provider = environment("FI_PROVIDER");
  // FI_PROVIDER is a list. A leading "^" excludes the listed providers.
  if (provider && !provider->empty() && (provider->front() == '^') == (provider->find("efa") != std::string::npos)) {
    throw_user_error("FI_PROVIDER={} disables EFA, which --network {} requires on {}; unset FI_PROVIDER", *provider,
                     as_given(choice), own.host);
  }
  const PluginSearch search = find_libfabric_plugin(environment, plugin_files);
  if (!search.plugin) {
    throw_user_error(
        "{} has EFA, but NCCL cannot use it: {}; install aws-ofi-nccl (part of the EFA installer) or add its folder to "
        "LD_LIBRARY_PATH, or pass --network socket for TCP at less than half the speed",
        own.host, search.problem);
  }
  if (net && !equal_ignoring_case(*net, search.plugin->net_name)) {
    throw_user_error("NCCL_NET={} does not match the network that {} provides, \"{}\"; unset NCCL_NET", *net,
                     search.plugin->library, search.plugin->net_name);
  }
  // NCCL then uses only networks of this name, and fails if none exists.
  plan.settings.emplace_back("NCCL_NET", search.plugin->net_name);
  if (!search.plugin->by_default) plan.settings.emplace_back("NCCL_NET_PLUGIN", search.plugin->library);
  // Prevents a fallback to libfabric's TCP provider. The plugin selects its protocol by instance type only if this
  // variable is unset or exactly "efa".
  if (provider.value_or("") != "efa") plan.settings.emplace_back("FI_PROVIDER", "efa");
  return plan;
}

// NCCL initializes the network in NCCL_NET even on a single node.
void check_one_node(const Environment& environment, const std::vector<std::string>& plugin_files) {
  const auto net = environment("NCCL_NET");
  if (!net || !is_libfabric_net(*net)) return;
  const PluginSearch search = find_libfabric_plugin(environment, plugin_files);
  if (search.plugin && search.plugin->by_default) return;
  throw_user_error(
      "NCCL_NET={} requires a plugin that NCCL cannot find ({}); unset NCCL_NET, which a single node does not need",
      *net, search.plugin ? search.plugin->library + " is not in LD_LIBRARY_PATH" : search.problem);
}

// NCCL treats an empty value as unset.
bool is_set(const Environment& environment, const char* name) { return !environment(name).value_or("").empty(); }

// mpzero's minimum number of channels would override each of these variables.
constexpr const char* kChannelLimits[] = {"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS",
                                          "NCCL_MAX_NRINGS",    "NCCL_MIN_CTAS",      "NCCL_MAX_CTAS"};

// Ranks with different numbers of channels deadlock.
bool limits_channels(const std::vector<NodeNetwork>& nodes) {
  std::set<std::string> with, without;
  for (const NodeNetwork& node : nodes) (node.limits_channels ? with : without).insert(node.host);
  if (!with.empty() && !without.empty()) {
    throw_user_error(
        "one of {} is set on {} but not on {}, which would cause different numbers of NCCL channels; set the same "
        "variables on all hosts (mpirun -x, srun --export), or unset them",
        fmt::join(kChannelLimits, ", "), fmt::join(with, ", "), fmt::join(without, ", "));
  }
  return !with.empty();
}

// Over TCP, NCCL opens two channels with one connection each, except on EC2 (32 connections) and Google Cloud (4).
// mpzero opens 8 channels with two connections each: 16 connections from a rank to the next host. EC2 limits each
// connection to 5 Gb/s, or 10 Gb/s within a cluster placement group. bench/RESULTS.md compares other numbers. The
// user's settings take precedence.
void open_more_sockets(const Environment& environment, const std::vector<NodeNetwork>& nodes, NetworkPlan& plan) {
  if (!limits_channels(nodes)) plan.min_channels = 8;
  if (is_set(environment, "NCCL_SOCKET_NTHREADS")) return;
  // Without this variable, NCCL uses no socket threads on most machines and one connection per channel.
  plan.settings.emplace_back("NCCL_SOCKET_NTHREADS", "1");
  if (!is_set(environment, "NCCL_NSOCKS_PERTHREAD")) plan.settings.emplace_back("NCCL_NSOCKS_PERTHREAD", "2");
}

NetworkPlan plan_socket(const Environment& environment, const std::vector<NodeNetwork>& nodes) {
  if (const auto net = environment("NCCL_NET"); net && !equal_ignoring_case(*net, "Socket")) {
    throw_user_error("NCCL_NET={} conflicts with --network socket; unset NCCL_NET or omit the flag", *net);
  }
  NetworkPlan plan{.several_nodes = true, .proof = NetworkPlan::Proof::kSocket, .settings = {{"NCCL_NET", "Socket"}}};
  open_more_sockets(environment, nodes, plan);
  return plan;
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
  // NCCL assigns ranks with different NCCL_HOSTIDs to different nodes.
  own.node = environment("NCCL_HOSTID").value_or(own.host);
  own.limits_channels = std::any_of(std::begin(kChannelLimits), std::end(kChannelLimits),
                                    [&](const char* name) { return is_set(environment, name); });
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
  if (choice == NetworkChoice::kSocket) return plan_socket(environment, nodes);
  std::set<std::string> with, without;
  for (const NodeNetwork& node : nodes) (node.efa_devices > 0 ? with : without).insert(node.host);
  if (with.empty() && choice == NetworkChoice::kAuto) {
    NetworkPlan plan{.several_nodes = true, .proof = NetworkPlan::Proof::kAnything, .settings = {}};
    open_more_sockets(environment, nodes, plan);
    return plan;
  }
  if (with.empty()) {
    throw_user_error(
        "--network efa: {} {} no EFA device; use instances with EFA interfaces and the EFA driver (check with fi_info "
        "-p efa), or pass --network socket",
        fmt::join(without, ", "), has(without));
  }
  if (!without.empty()) {
    throw_user_error(
        "{} {} EFA, but {} {} no EFA, so NCCL would use TCP on all nodes; exclude {} (sbatch --exclude), attach EFA "
        "interfaces, or pass --network socket",
        fmt::join(with, ", "), has(with), fmt::join(without, ", "), has(without), fmt::join(without, ", "));
  }
  return plan_efa(choice, own, environment, plugin_files);
}

NetworkPlan choose_network(NetworkChoice choice, ProcessGroup& group) {
  const NodeNetwork own = look_at_network(process_environment);
  std::vector<NodeNetwork> nodes;
  for (const auto& [host, node, efa_devices, limited] :
       all_gather(group, std::tuple(own.host, own.node, own.efa_devices, own.limits_channels))) {
    nodes.push_back({.host = host, .node = node, .efa_devices = efa_devices, .limits_channels = limited});
  }
  NetworkPlan plan;
  run_on_all_ranks(group, [&] { plan = plan_network(choice, nodes, own, process_environment); });
  for (const auto& [name, value] : plan.settings) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  return plan;
}

}  // namespace mpzero::parallel
