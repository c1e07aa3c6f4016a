#pragma once

#include "app/flags/options.hpp"
#include "app/memory/layout_choice.hpp"
#include "app/train/measured_run.hpp"
#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero {

// `mpzero train` with these flags. Collective over all ranks of `mpi`. Returns the exit code:
// EXIT_SUCCESS, or kStoppedExitCode if the run was asked to stop and its state is saved.
// `plan`: for the log, see MeasuredRun. `predict`: to choose a layout.
int train(const CommandLine& command_line, parallel::MpiRuntime& mpi, const PlanBesideRun& plan = {},
          const PredictRun& predict = {});

}  // namespace mpzero
