
#include <filesystem>
#include <future>
#include <map>

#include "app/flags/options.hpp"
#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "parallel/mpi/deadline.hpp"
#include "parallel/network/network.hpp"
#include "parallel/network/network_plugin.hpp"
#include "parallel/network/network_proof.hpp"
#include "parallel/network/network_start.hpp"
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

// The log of NCCL and its plugin on a rank that uses EFA, in the formats of their releases.
struct Said {
  const char* by;
  const char* log;
  NetworkProof proof;
};

const Said kSaid[] = {
    {.by = "NCCL 2.10 and aws-ofi-nccl 1.3.0aws on p3dn",
     .log = "algo-1:462:462 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.3.0aws\n"
            "algo-1:462:462 [0] NCCL INFO NET/OFI Forcing AWS OFI ndev 2\n"
            "algo-1:462:462 [0] NCCL INFO NET/OFI Selected Provider is efa\n"
            "algo-1:462:462 [0] NCCL INFO Using network AWS Libfabric\n"
            "algo-1:462:500 [0] NCCL INFO Channel 00 : 7[0] -> 8[0] [receive] via NET/AWS Libfabric/0\n",
     .proof = {.net = "AWS Libfabric",
               .provider = "efa",
               .devices = 0,
               .plugin = "aws-ofi-nccl 1.3.0aws",
               .gpu_direct = false}},
    {.by = "NCCL 2.21 and aws-ofi-nccl 1.9.2-aws on p4d",
     .log = "algo-1:18059:18059 [2] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.9.2-aws\n"
            "algo-1:18059:18059 [2] NCCL INFO NET/OFI Using Libfabric version 1.22\n"
            "algo-1:18059:18059 [2] NCCL INFO NET/OFI Using transport protocol SENDRECV\n"
            "algo-1:18059:18059 [2] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
            "algo-1:18059:18059 [2] NCCL INFO Using non-device net plugin version 0\n"
            "algo-1:18059:18059 [2] NCCL INFO Using network AWS Libfabric\n"
            "algo-1:18059:20782 [2] NCCL INFO Channel 04/1 : 15[7] -> 2[2] [receive] via NET/AWS "
            "Libfabric/1/GDRDMA/Shared\n"
            "algo-1:18059:20782 [2] NCCL INFO Channel 00/1 : 2[2] -> 5[5] via P2P/CUMEM/read\n",
     .proof = {.net = "AWS Libfabric",
               .provider = "efa",
               .devices = 4,
               .plugin = "aws-ofi-nccl 1.9.2-aws",
               .gpu_direct = true}},
    {.by = "NCCL 2.23 and aws-ofi-nccl 1.13.2-aws on g5.8xlarge",
     .log = "node-1:9:9 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.13.2-aws\n"
            "node-1:9:9 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)\n"
            "node-1:9:9 [0] NCCL INFO Using network Libfabric\n"
            "node-1:9:9 [0] NCCL INFO NET/Libfabric : GPU Direct RDMA Disabled for HCA 0 'rdmap0s29'\n"
            "node-1:9:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0\n",
     .proof = {.net = "Libfabric",
               .provider = "efa",
               .devices = 1,
               .plugin = "aws-ofi-nccl 1.13.2-aws",
               .gpu_direct = false}},
    {.by = "NCCL 2.28 and aws-ofi-nccl 1.16.2 on p5en",
     .log = "node1:42:42 [0] NCCL INFO Successfully loaded external network plugin libnccl-net.so\n"
            "node1:42:42 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2\n"
            "node1:42:42 [0] NCCL INFO NET/OFI Using Libfabric version 2.1\n"
            "node1:42:42 [0] NCCL INFO NET/OFI Using transport protocol RDMA (platform set)\n"
            "node1:42:42 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)\n"
            "node1:42:42 [0] NCCL INFO Initialized NET plugin Libfabric\n"
            "node1:42:42 [0] NCCL INFO Assigned NET plugin Libfabric to comm\n"
            "node1:42:42 [0] NCCL INFO Using network Libfabric\n"
            "node1:42:42 [0] NCCL INFO NET/Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap79s0'\n"
            "node1:42:80 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0(1)/GDRDMA\n"
            "node1:42:80 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA(PCI)\n",
     .proof =
         {.net = "Libfabric", .provider = "efa", .devices = 16, .plugin = "aws-ofi-nccl 1.16.2", .gpu_direct = true}},
    {.by = "NCCL 2.28 and a build of aws-ofi-nccl between releases, on a rank without a peer on another node",
     .log = "node1:7:7 [3] NCCL INFO NET/OFI Initializing aws-ofi-nccl git-6e504db\n"
            "node1:7:7 [3] NCCL INFO NET/OFI Plugin selected platform: AWS\n"
            "node1:7:7 [3] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 4 nics)\n"
            "node1:7:7 [3] NCCL INFO Using network Libfabric\n"
            "node1:7:7 [3] NCCL INFO NET/Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap16s27'\n"
            "node1:7:9 [3] NCCL INFO Channel 00 : 3[3] -> 4[4] via P2P/CUMEM/read\n",
     .proof = {.net = "Libfabric",
               .provider = "efa",
               .devices = 4,
               .plugin = "aws-ofi-nccl git-6e504db",
               .gpu_direct = true}},
};

void check_equal(const NetworkProof& proof, const NetworkProof& expected) {
  CHECK(proof.net == expected.net);
  CHECK(proof.provider == expected.provider);
  CHECK(proof.devices == expected.devices);
  CHECK(proof.plugin == expected.plugin);
  CHECK(proof.gpu_direct == expected.gpu_direct);
}

}  // namespace

TEST_CASE("with EFA, NCCL is restricted to the plugin's network") {
  for (const NetworkChoice choice : {NetworkChoice::kAuto, NetworkChoice::kEfa}) {
    const NetworkPlan efa = plan(choice, {kEfaA, kEfaB});
    CHECK(efa.proof == Proof::kEfa);
    CHECK(settings(efa) == std::map<std::string, std::string>{{"NCCL_NET", "Libfabric"},
                                                              {"NCCL_NET_PLUGIN", stand_in("fake_plugin")},
                                                              {"FI_PROVIDER", "efa"}});
  }
  // Older releases of the plugin use another name for their network.
  CHECK(settings(plan(NetworkChoice::kAuto, {kEfaA, kEfaB}, {}, {stand_in("fake_old_plugin")}))["NCCL_NET"] ==
        "AWS Libfabric");
  // Correct settings of the user are kept.
  const auto own = settings(
      plan(NetworkChoice::kAuto, {kEfaA, kEfaB},
           {{"NCCL_NET", "libfabric"}, {"FI_PROVIDER", "efa"}, {"NCCL_NET_PLUGIN", stand_in("fake_plugin")}}, {}));
  CHECK(own == std::map<std::string, std::string>{{"NCCL_NET", "Libfabric"}});
}

TEST_CASE("a single node has no network to choose") {
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

TEST_CASE("without EFA, auto leaves the choice to NCCL, efa is refused and socket is strict") {
  const NetworkPlan free = plan(NetworkChoice::kAuto, {kTcpA, kTcpB});
  CHECK(free.proof == Proof::kAnything);
  const std::map<std::string, std::string> sockets{{"NCCL_SOCKET_NTHREADS", "1"}, {"NCCL_NSOCKS_PERTHREAD", "2"}};
  CHECK(settings(free) == sockets);
  CHECK(free.min_channels == 8);
  // NCCL multiplies the two, and has no threads by itself on most machines.
  using Settings = std::map<std::string, std::string>;
  const auto with_sockets = [](const Settings& variables) {
    return settings(plan(NetworkChoice::kAuto, {kTcpA, kTcpB}, variables));
  };
  CHECK(with_sockets({{"NCCL_NSOCKS_PERTHREAD", "8"}}) == Settings{{"NCCL_SOCKET_NTHREADS", "1"}});
  CHECK(with_sockets({{"NCCL_SOCKET_NTHREADS", "4"}}).empty());
  CHECK(with_sockets({{"NCCL_SOCKET_NTHREADS", "4"}, {"NCCL_NSOCKS_PERTHREAD", "8"}}).empty());
  CHECK(with_sockets({{"NCCL_SOCKET_NTHREADS", ""}, {"NCCL_NSOCKS_PERTHREAD", ""}}) == sockets);
  CHECK_THROWS_WITH(plan(NetworkChoice::kEfa, {kTcpA, kTcpB}), Catch::Contains("a, b have no EFA device"));
  const NetworkPlan socket = plan(NetworkChoice::kSocket, {kEfaA, kEfaB});
  CHECK(socket.proof == Proof::kSocket);
  CHECK(settings(socket)["NCCL_NET"] == "Socket");
  CHECK(settings(socket)["NCCL_SOCKET_NTHREADS"] == "1");
  CHECK(socket.settings.size() == 3);
}

TEST_CASE("a user-defined number of channels applies to all hosts or none") {
  const std::vector<std::string> names = {"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS",
                                          "NCCL_MAX_NRINGS",    "NCCL_MIN_CTAS",      "NCCL_MAX_CTAS"};
  for (const std::string& name : names) {
    CHECK(look_at_network(with({{name, "2"}})).limits_channels);
    CHECK_FALSE(look_at_network(with({{name, ""}})).limits_channels);
  }
  CHECK_FALSE(look_at_network(with({{"NCCL_NSOCKS_PERTHREAD", "2"}})).limits_channels);
  NodeNetwork a = kTcpA, b = kTcpB;
  a.limits_channels = b.limits_channels = true;
  CHECK(plan(NetworkChoice::kAuto, {a, b}).min_channels == 0);
  CHECK(plan(NetworkChoice::kSocket, {a, b}).min_channels == 0);
  for (const std::vector<NodeNetwork>& nodes : {std::vector{a, kTcpB}, std::vector{kTcpA, b}}) {
    const std::string with_it = nodes[0].limits_channels ? "a" : "b", without = nodes[0].limits_channels ? "b" : "a";
    CHECK_THROWS_WITH(plan(NetworkChoice::kSocket, nodes),
                      Catch::Contains("is set on " + with_it + " but not on " + without));
  }
}

TEST_CASE("parses the flag of mpzero train") {
  CHECK(parse_command_line({"--network", "efa"}).network == "efa");
  CHECK(parse_command_line({}).network == "auto");
  CHECK_THROWS_WITH(parse_command_line({"--network=tcp"}), Catch::Contains("--network"));
  CHECK(parse_network_choice("network", "socket") == NetworkChoice::kSocket);
  CHECK_THROWS_WITH(parse_network_choice("network", "tcp"), Catch::Contains("auto, efa or socket"));
}

TEST_CASE("EFA on only some of the nodes is refused") {
  for (const NetworkChoice choice : {NetworkChoice::kAuto, NetworkChoice::kEfa}) {
    CHECK_THROWS_WITH(plan(choice, {kEfaA, kTcpB}), Catch::Contains("a has EFA, but b has no EFA"));
    CHECK_THROWS_AS(plan(choice, {kEfaA, kTcpB}), UserError);
  }
  CHECK(plan(NetworkChoice::kSocket, {kEfaA, kTcpB}).proof == Proof::kSocket);
}

TEST_CASE("an environment variable that conflicts with the choice is reported") {
  const auto efa = [](const std::map<std::string, std::string>& variables) {
    return plan(NetworkChoice::kAuto, {kEfaA, kEfaB}, variables);
  };
  CHECK_THROWS_WITH(efa({{"NCCL_NET", "Socket"}}), Catch::Contains("NCCL_NET=Socket conflicts with --network auto"));
  CHECK_THROWS_WITH(efa({{"FI_PROVIDER", "tcp"}}), Catch::Contains("FI_PROVIDER=tcp disables EFA"));
  CHECK_THROWS_WITH(efa({{"FI_PROVIDER", "^efa"}}), Catch::Contains("FI_PROVIDER=^efa disables EFA"));
  // Settings that allow EFA among others are made strict.
  CHECK(settings(efa({{"FI_PROVIDER", "^tcp"}}))["FI_PROVIDER"] == "efa");
  CHECK(settings(efa({{"FI_PROVIDER", "efa,tcp"}}))["FI_PROVIDER"] == "efa");
  CHECK(settings(efa({{"FI_PROVIDER", "efa"}})).count("FI_PROVIDER") == 0);
  CHECK_THROWS_WITH(efa({{"NCCL_NET", "AWS Libfabric"}}), Catch::Contains("\"Libfabric\""));
  CHECK_THROWS_WITH(efa({{"NCCL_NET_PLUGIN", "none"}}), Catch::Contains("NCCL_NET_PLUGIN=none"));
  CHECK_THROWS_WITH(plan(NetworkChoice::kSocket, {kEfaA, kEfaB}, {{"NCCL_NET", "Libfabric"}}),
                    Catch::Contains("NCCL_NET=Libfabric conflicts with --network socket"));
}

TEST_CASE("a missing library, one that is not a plugin, and another plugin are distinguished") {
  const auto problem = [](const std::vector<std::string>& files,
                          const std::map<std::string, std::string>& variables = {}) {
    const PluginSearch search = find_libfabric_plugin(with(variables), files);
    CHECK_FALSE(search.plugin);
    return search.problem;
  };
  CHECK(problem({}) == "no libnccl-net.so was found");
  CHECK(problem({stand_in("fake_absent")}) == "no libnccl-net.so was found");
  CHECK_THAT(problem({stand_in("no_plugin")}), Catch::Contains("is not an NCCL network plugin"));
  CHECK_THAT(problem({stand_in("fake_other_plugin")}), Catch::Contains("provides the network \"FastSocket\""));
  CHECK_THAT(problem({}, {{"NCCL_NET_PLUGIN", "absent"}}), Catch::Contains("NCCL_NET_PLUGIN=absent"));
  CHECK(plugin_version(stand_in("fake_plugin")) == "1.16.2");
  CHECK(plugin_version(stand_in("fake_next_plugin")) == "git-6e504db");
  CHECK(plugin_version(stand_in("fake_old_plugin")) == "1.7.4-aws");
  CHECK(plugin_version(stand_in("fake_other_plugin")).empty());
  CHECK(plugin_version(stand_in("fake_absent")).empty());
  // aws/deep-learning-containers 6551; release notes of aws-ofi-nccl 1.21.
  for (const char* version : {"1.18.0", "1.18.0-aws", "1.19.2", "1.20.0"}) {
    CHECK_THAT(plugin_hazard(version).value_or(""), Catch::Contains(version));
  }
  for (const char* version : {"", "git-6e504db", "1.7.4-aws", "1.17.3", "1.21.0", "1.21.1", "2.0.0"}) {
    CHECK_FALSE(plugin_hazard(version));
  }
  // The one of several plugins that is libfabric's.
  const PluginSearch found = find_libfabric_plugin(with({}), {stand_in("fake_other_plugin"), stand_in("fake_plugin")});
  REQUIRE(found.plugin);
  CHECK(found.plugin->library == stand_in("fake_plugin"));
  CHECK(found.plugin->file == stand_in("fake_plugin"));
  CHECK_THROWS_WITH(plan(NetworkChoice::kAuto, {kEfaA, kEfaB}, {}, {}),
                    Catch::Contains("a has EFA, but NCCL cannot use it: no libnccl-net.so was found"));
}

TEST_CASE("the proof is parsed from NCCL's log, for several releases") {
  const NetworkPlan efa = {.several_nodes = true, .proof = Proof::kEfa, .settings = {}};
  for (const Said& said : kSaid) {
    INFO(said.by);
    const NetworkProof proof = parse_network_proof(said.log);
    check_equal(proof, said.proof);
    SingleProcess alone;
    check_equal(all_gather(alone, proof).front(), proof);
    CHECK(missing_proof(efa, proof, "a").empty());
  }
  // One channel through host memory is enough.
  CHECK(parse_network_proof(std::string(kSaid[3].log) +
                            "node1:42:80 [0] NCCL INFO Channel 02/0 : 8[0] -> 0[0] [receive] via NET/Libfabric/1\n")
            .gpu_direct == false);
  CHECK_FALSE(parse_network_proof("Using network Socket\n").gpu_direct);
  const NetworkProof infiniband = parse_network_proof(
      "h:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\nh:1:1 [0] NCCL INFO Using network "
      "IB\nh:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA/Shared\n");
  CHECK(infiniband.net == "IB");
  CHECK(infiniband.gpu_direct == true);
  CHECK(infiniband.provider.empty());
}

TEST_CASE("the proofs of all ranks are formatted as a log line and warnings") {
  const NetworkPlan efa = {.several_nodes = true, .proof = Proof::kEfa, .settings = {}};
  const NetworkProof p5 = kSaid[3].proof, g5 = kSaid[2].proof, old = kSaid[0].proof;
  CHECK(describe_network({p5, p5}) ==
        "Network: Libfabric (aws-ofi-nccl 1.16.2), provider efa, 16 devices, GPUDirect RDMA on all 2 ranks");
  CHECK(network_warnings(efa, {p5, p5}).empty());
  CHECK(describe_network({g5}) ==
        "Network: Libfabric (aws-ofi-nccl 1.13.2-aws), provider efa, 1 device, GPUDirect RDMA on 0 of 1 ranks");
  CHECK(network_warnings(efa, {g5}).size() == 1);
  // If the number of devices was not logged, the line has none.
  CHECK_THAT(describe_network({old}), Catch::Contains("provider efa, GPUDirect"));
  NetworkProof other = p5;
  other.plugin = "aws-ofi-nccl 1.17.0";
  REQUIRE(network_warnings(efa, {p5, p5, other}).size() == 1);
  NetworkProof hangs = p5;
  hangs.plugin = "aws-ofi-nccl 1.18.0";
  CHECK(network_warnings(efa, {hangs, hangs}).size() == 1);
  CHECK_THAT(network_warnings(efa, {p5, p5, other}).front(),
             Catch::Contains("rank 0 has aws-ofi-nccl 1.16.2 and rank 2 has aws-ofi-nccl 1.17.0"));
}

TEST_CASE("the proofs determine the value of --network if all ranks agree") {
  const NetworkProof p5 = kSaid[3].proof, g5 = kSaid[2].proof;
  const NetworkProof socket{.net = "Socket", .provider = "", .plugin = "", .gpu_direct = std::nullopt};
  const NetworkProof tcp{.net = "Libfabric", .provider = "tcp;ofi_rxm", .plugin = "", .gpu_direct = std::nullopt};
  const NetworkProof infiniband{.net = "IB", .provider = "", .plugin = "", .gpu_direct = std::nullopt};
  CHECK(network_of({p5, g5}) == "efa");
  CHECK(network_of({socket, tcp}) == "socket");
  CHECK(network_of({p5, socket}).empty());
  CHECK(network_of({infiniband, infiniband}).empty());
}

TEST_CASE("libfabric without EFA, and sockets, are not accepted as EFA") {
  const NetworkPlan efa = {.several_nodes = true, .proof = Proof::kEfa, .settings = {}};
  const NetworkPlan socket = {.several_nodes = true, .proof = Proof::kSocket, .settings = {}};
  const NetworkProof tcp = parse_network_proof(
      "h:1:1 [0] NCCL INFO NET/OFI Selected provider is tcp;ofi_rxm, fabric is 172.31.0.0/16 (found 1 nics)\nh:1:1 [0] "
      "NCCL INFO Using network Libfabric\n");
  CHECK(tcp.provider == "tcp;ofi_rxm");
  const NetworkPlan none = {.several_nodes = true, .proof = Proof::kAnything, .settings = {}};
  REQUIRE(network_warnings(none, {tcp}).size() == 1);
  CHECK_THAT(network_warnings(none, {tcp}).front(), Catch::Contains("no node has an EFA"));
  CHECK_THAT(missing_proof(efa, tcp, "a"),
             Catch::Contains("NCCL uses \"Libfabric\" over tcp;ofi_rxm instead of EFA on a"));
  const NetworkProof plain = parse_network_proof("x NCCL INFO Using network Socket\r\n");
  CHECK(plain.net == "Socket");
  CHECK_THAT(missing_proof(efa, plain, "a"), Catch::Contains("\"Socket\" instead of EFA"));
  CHECK(missing_proof(socket, plain, "a").empty());
  CHECK_FALSE(missing_proof(socket, tcp, "a").empty());
  CHECK_FALSE(missing_proof(efa, {}, "a").empty());
}

TEST_CASE("the reason why a network fails to start is found in the log") {
  const std::string loaded = "h:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)\n";
  const std::string failed =
      "\n[2026-01-05 10:00:00] h:1:1 [0] plugin/net.cc:379 NCCL WARN Failed to initialize any NET plugin\n";
  CHECK(parse_network_failure("h:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n" + failed) ==
        "Could not find: libnccl-net.so");
  CHECK(parse_network_failure("h:1:1 [0] NCCL INFO NET/Plugin: libnccl-net.so: libfabric.so.1: cannot open shared "
                              "object file: No such file or directory\n" +
                              failed) ==
        "libnccl-net.so: libfabric.so.1: cannot open shared object file: No such file or directory");
  CHECK(parse_network_failure("h:1:1 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so\n").empty());
  // The plugin's own message is nearer to the cause.
  CHECK(
      parse_network_failure("h:1:1 [0] NCCL INFO NET/Plugin: Could not find: libother.so\n" + loaded +
                            "\n[2025-10-16 22:16:08] h:1:1 [0] nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI "
                            "fi_getinfo() call failed: No data available\n"
                            "\n[2025-10-16 22:16:08] h:1:1 [0] nccl_net_ofi_create_plugin:215 NCCL WARN NET/OFI Failed "
                            "to initialize rdma protocol\n" +
                            failed) == "OFI fi_getinfo() call failed: No data available");
  CHECK(
      parse_network_failure(loaded +
                            "h:1:1 [0] NCCL INFO NET/OFI No eligible providers were found\n"
                            "\n[2026-01-05 10:00:00] h:1:1 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**)"
                            ":215 NCCL WARN NET/OFI Failed to initialize rdma protocol\n" +
                            failed) == "No eligible providers were found");
  CHECK(parse_network_failure(loaded +
                              "\n[2026-01-05 10:00:00] h:1:1 [0] virtual int PlatformAWS::config_endpoint(fi_info*, "
                              "fid_ep*):819 NCCL WARN NET/OFI GDR disabled on GDR-supported instance type p5/p5e\n") ==
        "GDR disabled on GDR-supported instance type p5/p5e");
  CHECK(parse_network_failure("[2026-09-01 10:00:00] h:1:1 [0] void f():1047 NCCL WARN NET/OFI Request 0x7f (send) "
                              "completed with error: err: 113\n\n****\n"
                              "* This error indicates that the security group on either this instance or the peer "
                              "instance\n* is not setup correctly.\n****\n") == "a security group drops EFA's packets");
  CHECK(parse_network_failure(loaded).empty());
}

TEST_CASE("a deadline that is met does nothing, and a missed deadline ends the process") {
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

}  // namespace mpzero::parallel
