#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/network/network.hpp"

namespace mpzero::parallel {

// Captures NCCL's and its plugin's log messages about their networks during its lifetime, in place of the user's
// NCCL_DEBUG settings, which are restored afterwards. If the user set NCCL_DEBUG=INFO or TRACE, the captured text is
// then passed on: to stdout, or to a file next to NCCL_DEBUG_FILE (which NCCL itself truncates) with the same name and
// ".start". One at a time, on a thread with no concurrent getenv(): monitoring threads must have read the environment
// before.
class NcclLog {
 public:
  // Throws Failure if the in-memory file cannot be created.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  // The text logged so far.
  std::string text() const;

 private:
  std::optional<std::string> before(const std::string& name) const;
  void pass_on() const;

  int file_ = -1;
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

// One rank's network as logged by NCCL (NCCL_DEBUG=INFO, subsystems INIT and NET). Written for the messages of NCCL
// 2.28 (init.cc, graph/topo.cc, transport/net.cc, plugin/net.cc) and of aws-ofi-nccl 1.6 to 1.21.
struct NetworkProof {
  std::string net;                 // "Libfabric", "Socket", "IB"; empty: NCCL logged none
  std::string provider;            // libfabric's: "efa", "tcp"; empty: the network is not libfabric's
  int devices = 0;                 // found by the provider; 0: not logged
  std::string plugin;              // "aws-ofi-nccl 1.16.2"; empty: none
  std::optional<bool> gpu_direct;  // network card accesses GPU memory directly; none: not logged

  static auto fields(auto& proof) {  // base/collectives.hpp
    return std::tie(proof.net, proof.provider, proof.devices, proof.plugin, proof.gpu_direct);
  }
};

NetworkProof parse_network_proof(std::string_view log);

// The reason why the network did not start, as part of a sentence; empty if the log contains none.
std::string parse_network_failure(std::string_view log);

// The contradiction between `proof` and `plan`, one sentence; empty if there is none.
std::string missing_proof(const NetworkPlan& plan, const NetworkProof& proof, const std::string& host);

}  // namespace mpzero::parallel
