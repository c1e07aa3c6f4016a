#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/fabric.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// A property that should be the same on all hosts.
struct Fact {
  std::string what;      // "NCCL"
  std::string value;     // "2.28.9"; empty: missing
  bool decisive = true;  // hosts that differ cannot work together, or not for long

  static auto fields(auto& fact) { return std::tie(fact.what, fact.value, fact.decisive); }  // base/collectives.hpp
};

std::vector<Fact> collect_facts(const System& system, const GpuSurvey& gpus, const FabricSurvey& fabric,
                                const parallel::PluginSearch& plugin);

// One finding about host `own`: its facts that differ from those of more than half of the hosts. `facts`: in the order
// of `hosts`. Without such a majority every host differs, so the failure is attributed to the job.
Finding compare_facts(size_t own, const std::vector<std::string>& hosts, const std::vector<std::vector<Fact>>& facts);

}  // namespace mpzero::doctor
