#pragma once

#include <string>
#include <vector>

#include "app/doctor/finding.hpp"
#include "app/doctor/system.hpp"

namespace mpzero::doctor {

// What libfabric offers on this machine.
struct FabricSurvey {
  bool library = false;
  std::string problem;                 // why not
  std::string version;                 // "2.1"
  std::vector<std::string> providers;  // each once
  int efa_domains = 0;
  bool efa_gpu_memory = false;  // EFA takes GPU memory (FI_HMEM)
};

// Asks the first of `libraries` that can be loaded with fi_getinfo(). Never throws.
FabricSurvey survey_fabric(const std::vector<std::string>& libraries);

// EFA and InfiniBand: devices against what the instance type has, the state of their ports, libfabric's provider for
// them, GPUDirect, readable counters, NCCL's plugin.
std::vector<Finding> check_fabric(const System& system, const Job& job, const FabricSurvey& survey);

}  // namespace mpzero::doctor
