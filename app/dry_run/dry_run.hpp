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

// Implements `mpzero train --dry_run`: validates the run and prints a description. Reads flags, ds_config.json, the
// model's config.json, and the headers of token files, weights and checkpoints. Uses neither GPUs nor MPI, and writes
// no files. Missing token files are reported but do not cause an error. Returns EXIT_SUCCESS. Throws UserError if the
// run would fail to start.
int dry_run(const CommandLine& command_line, const parallel::LaunchSize& launch);

// Returns the number and placement of ranks from flags or, by default, from the launcher. Throws UserError if hosts
// would have different numbers of ranks.
DryRunRanks dry_run_ranks(const CommandLine& command_line, const parallel::LaunchSize& launch);

RankPlacement placement_of(const DryRunRanks& ranks);

// Returns true if the run is assumed to use GPUs. `device`: value of --device. With "auto", a machine without GPUs is
// assumed to be the login node of a GPU cluster if the run has several hosts and no launcher started it.
bool chooses_for_gpus(const std::string& device, const DryRunRanks& ranks, const MachineMemory& machine);

// Describes the run, one fact per line. `preview`: see preview_resume().
std::vector<std::string> describe_run(const RunSetup& setup, const DryRunRanks& ranks, const ResumePreview& preview);

}  // namespace mpzero
