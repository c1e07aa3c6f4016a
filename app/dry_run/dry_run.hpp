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

// `mpzero train --dry_run`: checks the run and prints a description without starting it. Reads flags, ds_config.json,
// the model's config.json, and the headers of token files, weights and checkpoints; uses neither GPU nor MPI, and
// writes nothing. Reports missing token files and checks the rest. Returns EXIT_SUCCESS. Throws UserError if the run
// would refuse its input.
int dry_run(const CommandLine& command_line, const parallel::LaunchSize& launch);

// The ranks from the flags, else from the launcher. Throws UserError if hosts would have unequal numbers of ranks.
DryRunRanks dry_run_ranks(const CommandLine& command_line, const parallel::LaunchSize& launch);

// The hosts of these ranks.
RankPlacement placement_of(const DryRunRanks& ranks);

// Whether the layout is chosen as for GPUs. `device`: the configured device. With "auto" and several hosts, a machine
// without GPUs that is not one of them is assumed to be a login node of hosts with GPUs.
bool chooses_for_gpus(const std::string& device, const DryRunRanks& ranks, const MachineMemory& machine);

// Describes the run, one fact per line. `preview`: how it would treat existing checkpoints.
std::vector<std::string> describe_run(const RunSetup& setup, const DryRunRanks& ranks, const ResumePreview& preview);

}  // namespace mpzero
