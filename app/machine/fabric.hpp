#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::doctor {

// libfabric on this host.
struct FabricSurvey {
  bool library = false;
  std::string problem;                 // why there is no library
  std::string version;                 // "2.1.0amzn3.0"
  std::string file;                    // file that the loader found
  std::vector<std::string> providers;  // without duplicates
  bool efa = false;                    // a provider is EFA's
  bool efa_gpu_memory = false;         // EFA supports GPU memory (FI_HMEM)
};

// Where to look for libfabric: first in the libraries of NCCL's plugin, if there is one, since a host may have several.
std::vector<std::string> libfabric_files(const System& system, const parallel::PluginSearch& plugin);

// Queries the first of `libraries` that has fi_getinfo(), itself or through a dependency. Never throws.
FabricSurvey survey_fabric(const std::vector<std::string>& libraries);

// Checks EFA and InfiniBand: devices against the instance type, port states, libfabric's provider, GPUDirect, NCCL's
// plugin. `gpus`: whether this host has GPUs.
std::vector<Finding> check_fabric(const System& system, const Job& job, bool gpus, const FabricSurvey& survey,
                                  const parallel::PluginSearch& plugin);

}  // namespace mpzero::doctor
