#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "app/gpu/nvml.hpp"
#include "app/machine/fabric.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// A property that should be identical on all hosts.
struct Fact {
  std::string what;      // name of the property, e.g. "NCCL"
  std::string value;     // e.g. "2.28.9"; empty if missing
  bool decisive = true;  // a difference is a failure, not only a warning

  static auto fields(auto& fact) { return std::tie(fact.what, fact.value, fact.decisive); }  // base/collectives.hpp
};

std::vector<Fact> collect_facts(const System& system, const GpuSurvey& gpus, const FabricSurvey& fabric,
                                const parallel::PluginSearch& plugin);

// Returns a finding that lists the facts in which host `own` differs from the majority of hosts. `facts`: one entry per
// host. If there is no majority, all hosts get a finding, so that the failure is attributed to the job.
Finding compare_facts(size_t own, const std::vector<std::string>& hosts, const std::vector<std::vector<Fact>>& facts);

}  // namespace mpzero::doctor
