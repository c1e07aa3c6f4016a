#pragma once

#include <string>
#include <vector>

#include "app/checkpoint/resume_preview.hpp"
#include "app/config/run_setup.hpp"
#include "app/dry_run/memory_report.hpp"
#include "app/flags/options.hpp"
#include "app/memory/layout_choice.hpp"
#include "parallel/mpi/launch_check.hpp"

namespace mpzero {

// `mpzero train --dry_run`: checks all that can be checked before the run and prints what it would train. Reads flags,
// ds_config.json, the model's config.json, the headers of token files, weights and checkpoints; starts no GPU and no
// MPI, and writes nothing. A token file that does not exist yet is named, and the rest is checked. Returns
// EXIT_SUCCESS. Throws UserError for what the run would refuse.
int dry_run(const CommandLine& command_line, const parallel::LaunchSize& launch);

// The ranks that the flags give, else the launcher. Throws UserError where they do not fill hosts evenly.
DryRunRanks dry_run_ranks(const CommandLine& command_line, const parallel::LaunchSize& launch);

// Where these ranks are.
RankPlacement placement_of(const DryRunRanks& ranks);

// Whether the layout is chosen as for GPUs. `device`: the configured device. With "auto" and several hosts, a machine
// without GPUs that is not one of them is assumed to be a login node of hosts with GPUs.
bool chooses_for_gpus(const std::string& device, const DryRunRanks& ranks, const MachineMemory& machine);

// What the run would train, a line each. `preview`: what it would do with the checkpoints that are there.
std::vector<std::string> describe_run(const RunSetup& setup, const DryRunRanks& ranks, const ResumePreview& preview);

}  // namespace mpzero
