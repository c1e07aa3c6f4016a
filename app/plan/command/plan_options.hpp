#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/plan/command/plan_limit.hpp"
#include "app/plan/estimate/plan_machine.hpp"

namespace mpzero::plan {

// Flags specific to `mpzero plan`. `rest` contains the flags of `mpzero train`.
struct PlanOptions : HostOptions {
  // Instance types and numbers of hosts from --instances. `instance` and `nodes` are equal to the first entry.
  std::vector<std::pair<std::string, int64_t>> instances;
  double tokens = 0;  // training tokens; 0: not set
  bool json = false;
  bool compare = false;
  PlanLimit limit = PlanLimit::kNone;
  PlanAssumptions assumptions = {};
  std::vector<std::string> rest;  // flags of `mpzero train`
};

// Parses the arguments of `mpzero plan`. Throws UserError, with the flag in the message, for an invalid flag.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments);
// Returns the names of the flags specific to `mpzero plan`, without dashes.
std::vector<std::string> plan_flag_names();

constexpr const char* kListedByPlanHelp = "mpzero plan --help and mpzero train --help list all flags";

// Returns the help of all flags or, if `flag` is not empty, of this flag; empty if there is no such flag.
std::string plan_help(const std::string& flag = "");

}  // namespace mpzero::plan
