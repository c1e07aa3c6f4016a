#include <nccl.h>

#include <future>
#include <map>

#include "app/options.hpp"
#include "base/error.hpp"
#include "parallel/deadline.hpp"
#include "parallel/environment.hpp"
#include "parallel/nccl_log.hpp"
#include "parallel/network.hpp"
#include "parallel/network_plugin.hpp"
#include "parallel/network_proof.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::parallel {
namespace {

using doctor::stand_in;

Environment with(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

const NodeNetwork kEfaA = {.host = "a", .node = "a", .efa_devices = 4};
const NodeNetwork kEfaB = {.host = "b", .node = "b", .efa_devices = 4};
const NodeNetwork kTcpA = {.host = "a", .node = "a", .efa_devices = 0};
const NodeNetwork kTcpB = {.host = "b", .node = "b", .efa_devices = 0};

NetworkPlan plan(NetworkChoice choice, const std::vector<NodeNetwork>& nodes,
                 const std::map<std::string, std::string>& variables = {},
                 const std::vector<std::string>& plugins = {stand_in("fake_plugin")}) {
  return plan_network(choice, nodes, nodes.front(), with(variables), plugins);
}

std::map<std::string, std::string> settings(const NetworkPlan& plan) {
  return {plan.settings.begin(), plan.settings.end()};
}

using Proof = NetworkPlan::Proof;

// What NCCL 2.28 and aws-ofi-nccl 1.16 say on two nodes with EFA.
constexpr const char* kEfaLog =
    "node1:42:42 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2\n"
    "node1:42:42 [0] NCCL INFO NET/OFI Using Libfabric version 2.1\n"
    "node1:42:42 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)\n"
    "node1:42:42 [0] NCCL INFO Using network Libfabric\n"
    "node1:42:42 [0] NCCL INFO NET/Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap79s0'\n"
    "node1:42:80 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA\n";

}  // namespace

TEST_CASE("on EFA, NCCL is told to take the plugin's network or none") {
  for (const NetworkChoice choice : {NetworkChoice::kAuto, NetworkChoice::kEfa}) {
    const NetworkPlan efa = plan(choice, {kEfaA, kEfaB});
    CHECK(efa.proof == Proof::kEfa);
    CHECK(settings(efa) == std::map<std::string, std::string>{{"NCCL_NET", "Libfabric"},
                                                              {"NCCL_NET_PLUGIN", stand_in("fake_plugin")},
                                                              {"FI_PROVIDER", "efa"}});
  }
  // Older releases of the plugin call their network by another name.
  CHECK(settings(plan(NetworkChoice::kAuto, {kEfaA, kEfaB}, {}, {stand_in("fake_old_plugin")}))["NCCL_NET"] ==
        "AWS Libfabric");
  // What the user has set already, and is right, stays.
  const auto own = settings(
      plan(NetworkChoice::kAuto, {kEfaA, kEfaB},
           {{"NCCL_NET", "libfabric"}, {"FI_PROVIDER", "efa"}, {"NCCL_NET_PLUGIN", stand_in("fake_plugin")}}, {}));
  CHECK(own == std::map<std::string, std::string>{{"NCCL_NET", "Libfabric"}});
}

TEST_CASE("one node has no network to choose") {
  const NodeNetwork other_rank = kEfaA;
  for (const NetworkChoice choice : {NetworkChoice::kAuto, NetworkChoice::kEfa, NetworkChoice::kSocket}) {
    const NetworkPlan one = plan(choice, {kEfaA, other_rank}, {{"NCCL_NET", "whatever"}}, {});
    CHECK_FALSE(one.several_nodes);
    CHECK(one.proof == Proof::kNone);
    CHECK(one.settings.empty());
  }
  CHECK_THROWS_WITH(plan(NetworkChoice::kAuto, {kEfaA, other_rank}, {{"NCCL_NET", "Libfabric"}}, {}),
                    Catch::Contains("unset NCCL_NET"));
  // NCCL counts nodes by NCCL_HOSTID.
  CHECK(look_at_network(with({{"NCCL_HOSTID", "7"}})).node == "7");
  CHECK(look_at_network(with({})).node == look_at_network(with({})).host);
}

TEST_CASE("without EFA auto leaves NCCL its choice, efa is refused and socket is strict") {
  const NetworkPlan free = plan(NetworkChoice::kAuto, {kTcpA, kTcpB});
  CHECK(free.proof == Proof::kAnything);
  CHECK(free.settings.empty());
  CHECK_THROWS_WITH(plan(NetworkChoice::kEfa, {kTcpA, kTcpB}), Catch::Contains("a, b has no EFA device"));
  const NetworkPlan socket = plan(NetworkChoice::kSocket, {kEfaA, kEfaB});
  CHECK(socket.proof == Proof::kSocket);
  CHECK(settings(socket) == std::map<std::string, std::string>{{"NCCL_NET", "Socket"}});
}

TEST_CASE("the flag of mpzero train") {
  CHECK(parse_command_line({"--network", "efa"}).network == "efa");
  CHECK_FALSE(parse_command_line({}).network);
  CHECK_THROWS_WITH(parse_command_line({"--network=tcp"}), Catch::Contains("--network"));
  CHECK(parse_network_choice("network", "socket") == NetworkChoice::kSocket);
  CHECK_THROWS_WITH(parse_network_choice("network", "tcp"), Catch::Contains("auto, efa or socket"));
}

TEST_CASE("EFA on some of the nodes only ends the run before it is slow") {
  for (const NetworkChoice choice : {NetworkChoice::kAuto, NetworkChoice::kEfa}) {
    CHECK_THROWS_WITH(plan(choice, {kEfaA, kTcpB}), Catch::Contains("a has EFA and b has not"));
    CHECK_THROWS_AS(plan(choice, {kEfaA, kTcpB}), UserError);
  }
  CHECK(plan(NetworkChoice::kSocket, {kEfaA, kTcpB}).proof == Proof::kSocket);
}

TEST_CASE("an environment that contradicts the choice is named") {
  const auto efa = [](const std::map<std::string, std::string>& variables) {
    return plan(NetworkChoice::kAuto, {kEfaA, kEfaB}, variables);
  };
  CHECK_THROWS_WITH(efa({{"NCCL_NET", "Socket"}}), Catch::Contains("NCCL_NET=Socket contradicts --network auto"));
  CHECK_THROWS_WITH(efa({{"FI_PROVIDER", "tcp"}}), Catch::Contains("FI_PROVIDER=tcp keeps libfabric from EFA"));
  CHECK_THROWS_WITH(efa({{"FI_PROVIDER", "^efa"}}), Catch::Contains("FI_PROVIDER=^efa keeps libfabric from EFA"));
  CHECK(efa({{"FI_PROVIDER", "^tcp"}}).proof == Proof::kEfa);
  CHECK_THROWS_WITH(efa({{"NCCL_NET", "AWS Libfabric"}}), Catch::Contains("calls its network, which is \"Libfabric\""));
  CHECK_THROWS_WITH(efa({{"NCCL_NET_PLUGIN", "none"}}), Catch::Contains("NCCL_NET_PLUGIN=none forbids plugins"));
  CHECK_THROWS_WITH(plan(NetworkChoice::kSocket, {kEfaA, kEfaB}, {{"NCCL_NET", "Libfabric"}}),
                    Catch::Contains("NCCL_NET=Libfabric contradicts --network socket"));
}

TEST_CASE("a plugin that is missing, no plugin, or another one is told apart") {
  const auto problem = [](const std::vector<std::string>& files,
                          const std::map<std::string, std::string>& variables = {}) {
    const PluginSearch search = find_libfabric_plugin(with(variables), files);
    CHECK_FALSE(search.plugin);
    return search.problem;
  };
  CHECK(problem({}) == "no libnccl-net.so was found");
  CHECK(problem({stand_in("fake_absent")}) == "no libnccl-net.so was found");
  CHECK_THAT(problem({stand_in("no_plugin")}), Catch::Contains("is no network plugin of NCCL"));
  CHECK_THAT(problem({stand_in("fake_other_plugin")}), Catch::Contains("offers the network \"FastSocket\""));
  CHECK_THAT(problem({}, {{"NCCL_NET_PLUGIN", "absent"}}), Catch::Contains("NCCL_NET_PLUGIN=absent"));
  // The one of several that is libfabric's.
  const PluginSearch found = find_libfabric_plugin(with({}), {stand_in("fake_other_plugin"), stand_in("fake_plugin")});
  REQUIRE(found.plugin);
  CHECK(found.plugin->library == stand_in("fake_plugin"));
  CHECK_THROWS_WITH(plan(NetworkChoice::kAuto, {kEfaA, kEfaB}, {}, {}),
                    Catch::Contains("a has EFA, but NCCL cannot use it there: no libnccl-net.so was found"));
}

TEST_CASE("the proof is read from NCCL's own words") {
  const NetworkProof proof = parse_network_proof(kEfaLog);
  CHECK(proof.net == "Libfabric");
  CHECK(proof.provider == "efa");
  CHECK(proof.devices == 32);
  CHECK(proof.plugin == "aws-ofi-nccl 1.16.2");
  CHECK(proof.gpu_direct == true);
  const NetworkProof read = read_network_proof(write_network_proof(proof));
  CHECK(read.net == proof.net);
  CHECK(read.provider == proof.provider);
  CHECK(read.devices == proof.devices);
  CHECK(read.plugin == proof.plugin);
  CHECK(read.gpu_direct == proof.gpu_direct);
  CHECK(missing_proof({.several_nodes = true, .proof = Proof::kEfa, .settings = {}}, proof, "a").empty());

  // One channel through host memory is enough; cards count where this rank has no channel.
  CHECK(parse_network_proof(std::string(kEfaLog) + "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/1\n")
            .gpu_direct == false);
  CHECK(parse_network_proof("NET/Libfabric : GPU Direct RDMA Disabled for HCA 0 'x'\n").gpu_direct == false);
  CHECK_FALSE(parse_network_proof("Using network Socket\n").gpu_direct);
}

TEST_CASE("libfabric without EFA, and sockets, are no proof of EFA") {
  const NetworkPlan efa = {.several_nodes = true, .proof = Proof::kEfa, .settings = {}};
  const NetworkPlan socket = {.several_nodes = true, .proof = Proof::kSocket, .settings = {}};
  const NetworkProof tcp = parse_network_proof(
      "NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)\nNCCL INFO NET/OFI Selected provider is tcp, fabric "
      "is "
      "x (found 1 nics)\nNCCL INFO Using network Libfabric\n");
  CHECK(tcp.provider == "tcp");
  CHECK_THAT(missing_proof(efa, tcp, "a"),
             Catch::Contains("NCCL runs over \"Libfabric\" over tcp instead of EFA on a"));
  const NetworkProof plain = parse_network_proof("x NCCL INFO Using network Socket\r\n");
  CHECK(plain.net == "Socket");
  CHECK_THAT(missing_proof(efa, plain, "a"), Catch::Contains("\"Socket\" instead of EFA"));
  CHECK(missing_proof(socket, plain, "a").empty());
  CHECK_FALSE(missing_proof(socket, tcp, "a").empty());
  CHECK_FALSE(missing_proof(efa, {}, "a").empty());
}

TEST_CASE("the reason for a network that does not start is found in the log") {
  CHECK(parse_network_failure(
            "h NCCL INFO NET/Plugin: Could not find: libnccl-net.so\nNCCL WARN Failed to initialize any "
            "NET plugin\n") == "Could not find: libnccl-net.so");
  CHECK(parse_network_failure("h:1:1 [0] int f():9 NCCL WARN NET/OFI Unable to find a protocol that worked.\n") ==
        "Unable to find a protocol that worked.");
  CHECK(parse_network_failure(
            "NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)\nx.cc:7 NCCL WARN NET/OFI No devices\n") ==
        "No devices");
  CHECK(
      parse_network_failure("NCCL INFO NET/Plugin: libnccl-net.so: libfabric.so.1: cannot open shared object file\n") ==
      "libnccl-net.so: libfabric.so.1: cannot open shared object file");
  CHECK(parse_network_failure("nothing\n").empty());
}

TEST_CASE("a deadline that is met does nothing, one that passes ends the process") {
  std::string said;
  {
    const Deadline met(
        std::chrono::minutes(5), [] { return "too late"; }, [&](const std::string& words) { said = words; });
  }
  CHECK(said.empty());
  std::promise<std::string> passed;
  const Deadline missed(
      std::chrono::milliseconds(1), [] { return "too late"; },
      [&](const std::string& words) { passed.set_value(words); });
  CHECK(passed.get_future().get() == "too late");
}

TEST_CASE("NCCL's words are caught, and the user's settings come back") {
  const doctor::Setting user("NCCL_DEBUG", "WARN");
  std::string text;
  {
    const NcclLog log;
    CHECK(process_environment("NCCL_DEBUG") == "INFO");
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    text = log.text();
  }
  CHECK_THAT(text, Catch::Contains("NCCL INFO"));
  CHECK(process_environment("NCCL_DEBUG") == "WARN");
  CHECK_FALSE(process_environment("NCCL_DEBUG_FILE"));
  CHECK_FALSE(process_environment("NCCL_DEBUG_SUBSYS"));
}

}  // namespace mpzero::parallel
