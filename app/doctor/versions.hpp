#pragma once

#include <string>
#include <vector>

#include "app/machine/fabric.hpp"
#include "app/machine/finding.hpp"
#include "app/machine/nvml.hpp"
#include "app/machine/system.hpp"

namespace mpzero::doctor {

// Something that should be the same on all hosts.
struct Fact {
  std::string what;      // "NCCL"
  std::string value;     // "2.28.9"; empty: not there
  bool decisive = true;  // hosts that differ cannot work together, or will not for long
};

std::vector<Fact> collect_facts(const System& system, const GpuSurvey& gpus, const FabricSurvey& fabric,
                                const parallel::PluginSearch& plugin);

// Facts as text that another rank reads again.
std::string write_facts(const std::vector<Fact>& facts);
std::vector<Fact> read_facts(const std::string& text);

// One finding on host `own` of `hosts`, whose facts are in the same order: what it has that differs from what more than
// half of them have. Where there is no such majority each of them differs, which makes the fault the job's.
Finding compare_facts(size_t own, const std::vector<std::string>& hosts, const std::vector<std::vector<Fact>>& facts);

}  // namespace mpzero::doctor
