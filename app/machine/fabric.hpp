#pragma once

#include <string>
#include <vector>

#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"
#include "parallel/network/network_plugin.hpp"

namespace mpzero::doctor {

// Result of survey_fabric(): libfabric on this host.
struct FabricSurvey {
  bool library = false;
  std::string problem;                 // reason why no library was loaded
  std::string version;                 // "2.1.0amzn3.0"
  std::string file;                    // path of the loaded library
  std::vector<std::string> providers;  // unique provider names
  bool efa = false;                    // an EFA provider exists
  bool efa_gpu_memory = false;         // EFA supports GPU memory (FI_HMEM)
};

// Returns candidate files of libfabric. The first candidate is NCCL's plugin, which loads the libfabric version that
// NCCL uses.
std::vector<std::string> libfabric_files(const System& system, const parallel::PluginSearch& plugin);

// Queries the first library in `libraries` that provides fi_getinfo(), directly or through a dependency. Never throws.
FabricSurvey survey_fabric(const std::vector<std::string>& libraries);

// Checks EFA and InfiniBand: the number of devices for the instance type, port states, libfabric's provider, GPUDirect,
// and NCCL's plugin. `gpus`: true if this host has GPUs.
std::vector<Finding> check_fabric(const System& system, const Job& job, bool gpus, const FabricSurvey& survey,
                                  const parallel::PluginSearch& plugin);

}  // namespace mpzero::doctor
