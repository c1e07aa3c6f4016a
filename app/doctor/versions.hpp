#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/fabric.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Something that should be the same on all hosts.
struct Fact {
  std::string what;      // "NCCL"
  std::string value;     // "2.28.9"; empty: missing
  bool decisive = true;  // hosts that differ cannot work together, or not for long

  static auto fields(auto& fact) { return std::tie(fact.what, fact.value, fact.decisive); }  // base/collectives.hpp
};

std::vector<Fact> collect_facts(const System& system, const GpuSurvey& gpus, const FabricSurvey& fabric,
                                const parallel::PluginSearch& plugin);

// One finding about host `own` of `hosts`, whose facts are in the same order: the facts that differ from those of more
// than half of the hosts. Without such a majority every host differs, which makes the fault the job's.
Finding compare_facts(size_t own, const std::vector<std::string>& hosts, const std::vector<std::vector<Fact>>& facts);

}  // namespace mpzero::doctor
