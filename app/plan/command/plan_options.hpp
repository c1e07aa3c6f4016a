#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/plan/command/plan_limit.hpp"

namespace mpzero::plan {

// The flags of `mpzero plan` itself. All others are those of `mpzero train`.
struct PlanOptions {
  std::string instance;  // EC2 instance type
  std::string gpu;       // or a GPU's name
  int64_t nodes = 1;     // hosts
  // From --instances: types and numbers of hosts to compare. `instance` and `nodes` are its first entry.
  std::vector<std::pair<std::string, int64_t>> instances;
  double tokens = 0;  // for the whole training; 0: not set
  bool json = false;
  bool compare = false;
  PlanLimit limit = PlanLimit::kNone;
  std::optional<double> host_gigabits;  // Gb/s of a host's network, with --gpu
  std::optional<double> network_rate;   // GB/s that a host sends in collectives between hosts
  double straggler_factor = 1;
  double network_factor = 1;
  std::optional<double> price;      // per host and hour
  std::string prices;               // a price file
  std::string calibration;          // a file
  std::optional<double> disk_rate;  // GB/s that a host writes
  std::vector<std::string> rest;    // flags of `mpzero train`
};

// Throws UserError with the flag.
PlanOptions parse_plan_options(const std::vector<std::string>& arguments);
// The flags of `mpzero plan` itself, without dashes.
std::vector<std::string> plan_flag_names();
std::string plan_help();

}  // namespace mpzero::plan
