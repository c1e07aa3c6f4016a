#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::doctor {

// What libfabric offers on this machine.
struct FabricSurvey {
  bool library = false;
  std::string problem;                 // why not
  std::string version;                 // "2.1.0amzn3.0"
  std::string file;                    // the file that the loader found
  std::vector<std::string> providers;  // each once
  bool efa = false;                    // one of them is EFA's
  bool efa_gpu_memory = false;         // EFA takes GPU memory (FI_HMEM)
};

// Where to look for libfabric: first in the libraries of NCCL's plugin, if there is one, since a machine may also have
// another libfabric.
std::vector<std::string> libfabric_files(const System& system, const parallel::PluginSearch& plugin);

// Queries the first of `libraries` that has fi_getinfo(), itself or through a library that it needs. Never throws.
FabricSurvey survey_fabric(const std::vector<std::string>& libraries);

// Checks EFA and InfiniBand: devices against those of the instance type, the state of their ports, libfabric's provider
// for them, GPUDirect, NCCL's plugin. `gpus`: whether this host has any.
std::vector<Finding> check_fabric(const System& system, const Job& job, bool gpus, const FabricSurvey& survey,
                                  const parallel::PluginSearch& plugin);

}  // namespace mpzero::doctor
