#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/network/network.hpp"

namespace mpzero::parallel {

// Captures log messages about the network from NCCL and its plugin during the object's lifetime. The constructor
// overrides the user's NCCL_DEBUG settings, and the destructor restores them. If the user set NCCL_DEBUG=INFO or TRACE,
// the captured text is then written to stdout, or to the path in NCCL_DEBUG_FILE with the suffix ".start" (NCCL
// truncates the file itself). At most one NcclLog may exist. Other threads must not call getenv() concurrently;
// monitoring threads must read the environment beforehand.
class NcclLog {
 public:
  // Throws Failure if the in-memory file cannot be created.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  // Returns the text that NCCL and its plugin have logged so far.
  std::string text() const;

 private:
  std::optional<std::string> before(const std::string& name) const;
  void pass_on() const;

  int file_ = -1;
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

// Network of one rank, parsed from NCCL's log (NCCL_DEBUG=INFO, subsystems INIT and NET). The parser matches the
// messages of NCCL 2.28 (init.cc, graph/topo.cc, transport/net.cc, plugin/net.cc) and of aws-ofi-nccl 1.6 to 1.21.
struct NetworkProof {
  std::string net;                 // "Libfabric", "Socket", "IB"; empty if not logged
  std::string provider;            // libfabric provider: "efa", "tcp"; empty for other networks
  int devices = 0;                 // devices found by the provider; 0 if not logged
  std::string plugin;              // "aws-ofi-nccl 1.16.2"; empty: none
  std::optional<bool> gpu_direct;  // GPUDirect RDMA; std::nullopt if not logged

  static auto fields(auto& proof) {  // see base/collectives.hpp
    return std::tie(proof.net, proof.provider, proof.devices, proof.plugin, proof.gpu_direct);
  }
};

NetworkProof parse_network_proof(std::string_view log);

// Returns the reason why NCCL could not start the network, as part of a sentence, or an empty string if `log` does not
// contain the reason.
std::string parse_network_failure(std::string_view log);

// Returns a sentence that describes how `proof` contradicts `plan`, or an empty string if there is no contradiction.
std::string missing_proof(const NetworkPlan& plan, const NetworkProof& proof, const std::string& host);

}  // namespace mpzero::parallel
