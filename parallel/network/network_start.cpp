#include "parallel/network/network_start.hpp"

#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAFunctions.h>
#include <strings.h>

#include <algorithm>
#include <optional>

#include "base/collectives.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/deadline.hpp"
#include "parallel/network/network_proof.hpp"

namespace mpzero::parallel {
namespace {

// NCCL connects to its peers and logs the network only in the first collective.
std::unique_ptr<NcclCommunicator> start_and_talk(MpiRuntime& mpi, int min_channels) {
  auto communicator = std::make_unique<NcclCommunicator>(mpi, NcclEngine::kCopyEngines, min_channels);
  const at::Tensor one = at::ones({1}, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
  communicator->all_reduce_sum(one)->wait();
  c10::cuda::device_synchronize();
  return communicator;
}

std::string in_parentheses(const std::string& message) {
  return message.empty() ? message : fmt::format(" ({})", message);
}

// Returns true if NCCL uses its own sockets, or a libfabric provider on top of kernel sockets.
bool over_sockets(const NetworkProof& proof) {
  if (strcasecmp(proof.net.c_str(), "Socket") == 0) return true;
  const std::string provider = proof.provider.substr(0, proof.provider.find(';'));
  return provider == "tcp" || provider == "net" || provider == "sockets" || provider == "udp";
}

std::string shown(const std::string& plugin) { return plugin.empty() ? "no plugin" : plugin; }

// Returns a sentence, based on NCCL's log, that explains why NCCL's network could not be initialized. Returns
// std::nullopt for any other failure.
std::optional<std::string> explain_failure(const std::string& log, const NetworkPlan& plan, const std::string& host) {
  if (log.find("Failed to initialize any NET plugin") == std::string::npos) return std::nullopt;
  const bool efa = plan.proof == NetworkPlan::Proof::kEfa;
  return fmt::format(
      "NCCL failed to initialize {} on {}{}: {}", efa ? "EFA" : "its network", host,
      in_parentheses(parse_network_failure(log)),
      efa ? "check that `fi_info -p efa` lists the devices, run `mpzero doctor`, or pass --network socket for "
            "TCP"
          : "NCCL_NET selects a network that does not exist; unset NCCL_NET");
}

}  // namespace

void end_unconnected(const std::string& message) { end_process(fmt::format("{}: {}", message, kUnconnectedRemedy)); }

ProvenNetwork prove_network(const NetworkPlan& plan, MpiRuntime& mpi, const StartPatience& patience) {
  const std::string host = look_at_network(process_environment).host;
  ProvenNetwork network;
  NetworkProof own;
  {
    const NcclLog log;
    std::optional<Deadline> deadline;
    const auto message = [&] {
      const std::string text = log.text();
      return fmt::format("NCCL initialization timed out on {} over \"{}\"{}", host, parse_network_proof(text).net,
                         in_parentheses(parse_network_failure(text)));
    };
    if (patience.limit.count() > 0) deadline.emplace(patience.limit, message, patience.overdue);
    try {
      network.communicator = start_and_talk(mpi, plan.min_channels);
    } catch (const Error& error) {
      const auto sentence = explain_failure(log.text(), plan, host);
      if (sentence) throw NetworkFailure(*sentence, error.scope(), {mpi.rank()});
      throw;
    }
    own = parse_network_proof(log.text());
  }
  const std::vector<std::string> missing = all_gather(mpi, missing_proof(plan, own, host));
  std::vector<int> without;
  for (size_t rank = 0; rank < missing.size(); ++rank) {
    if (!missing[rank].empty()) without.push_back(static_cast<int>(rank));
  }
  if (!without.empty()) {
    throw NetworkFailure(missing[static_cast<size_t>(without.front())], ErrorScope::kAllRanks, without);
  }
  network.proofs = all_gather(mpi, own);
  return network;
}

std::string describe_network(const std::vector<NetworkProof>& proofs) {
  const NetworkProof& first = proofs.front();
  std::string line = "Network: " + (first.net.empty() ? "not reported by NCCL" : first.net);
  if (!first.plugin.empty()) line += fmt::format(" ({})", first.plugin);
  if (!first.provider.empty()) line += fmt::format(", provider {}", first.provider);
  if (first.devices > 0) line += fmt::format(", {} device{}", first.devices, first.devices == 1 ? "" : "s");
  const auto others = std::count_if(proofs.begin(), proofs.end(), [&](const NetworkProof& proof) {
    return proof.net != first.net || proof.provider != first.provider;
  });
  if (others > 0) return line + fmt::format(" on rank 0, a different network on {} of {} ranks", others, proofs.size());
  const auto direct =
      std::count_if(proofs.begin(), proofs.end(), [](const NetworkProof& proof) { return proof.gpu_direct == true; });
  const auto silent = std::count_if(proofs.begin(), proofs.end(), [](const auto& proof) { return !proof.gpu_direct; });
  if (direct == static_cast<long>(proofs.size())) {
    line += fmt::format(", GPUDirect RDMA on all {} ranks", direct);
  } else if (silent < static_cast<long>(proofs.size())) {
    line += fmt::format(", GPUDirect RDMA on {} of {} ranks", direct, proofs.size());
  }
  return line;
}

std::string network_of(const std::vector<NetworkProof>& proofs) {
  const auto name = [](const NetworkProof& proof) -> std::string {
    if (over_sockets(proof)) return "socket";
    return proof.provider.substr(0, proof.provider.find(';')) == "efa" ? "efa" : "";
  };
  const std::string first = name(proofs.front());
  const bool same = std::all_of(proofs.begin(), proofs.end(), [&](const auto& proof) { return name(proof) == first; });
  return same ? first : "";
}

std::vector<std::string> network_warnings(const NetworkPlan& plan, const std::vector<NetworkProof>& proofs) {
  std::vector<std::string> warnings;
  const NetworkProof& first = proofs.front();
  if (over_sockets(first)) {
    warnings.emplace_back(plan.proof == NetworkPlan::Proof::kSocket
                              ? "NCCL uses TCP because of --network socket; ZeRO-3 steps are 2.2 times as fast with EFA"
                              : "NCCL uses TCP because no node has an EFA device; ZeRO-3 steps are 2.2 times as fast "
                                "with EFA (docs/ec2.md)");
  } else if (plan.proof == NetworkPlan::Proof::kEfa &&
             std::any_of(proofs.begin(), proofs.end(), [](const auto& proof) { return proof.gpu_direct == false; })) {
    warnings.emplace_back(
        "EFA is used without GPUDirect RDMA on some ranks, so data passes through host memory; see docs/ec2.md");
  }
  constexpr std::string_view kPlugin = "aws-ofi-nccl ";
  for (const NetworkProof& proof : proofs) {
    if (!proof.plugin.starts_with(kPlugin)) continue;
    if (std::optional<std::string> hazard = plugin_hazard(proof.plugin.substr(kPlugin.size()))) {
      warnings.push_back(std::move(*hazard));
      break;
    }
  }
  const auto odd = std::find_if(proofs.begin(), proofs.end(),
                                [&](const NetworkProof& proof) { return proof.plugin != first.plugin; });
  if (odd != proofs.end()) {
    warnings.push_back(fmt::format(
        "rank 0 has {} and rank {} has {}; different plugins may be incompatible: use the same image on all nodes",
        shown(first.plugin), odd - proofs.begin(), shown(odd->plugin)));
  }
  return warnings;
}

}  // namespace mpzero::parallel
