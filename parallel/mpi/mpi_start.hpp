#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "parallel/mpi/deadline.hpp"

struct ifaddrs;

namespace mpzero::parallel {

// Unsets the Slurm and PMI variables in an srun step with one task, except Slurm variables that mpzero reads. The task
// may be a shell (`srun --pty bash`) that started this process. Otherwise, MPI would join the step in place of the
// shell, which works only once, or require a PMI that this Slurm installation lacks. Must be called before MPI_Init.
void leave_launcher(const Environment& environment);

// Returns a message if OPAL_PREFIX refers to an Open MPI that differs from `library`, the libmpi of this process.
// Returns std::nullopt if OPAL_PREFIX matches or is not set.
std::optional<std::string> find_prefix_problem(const Environment& environment, const std::string& library);

// Returns the path of this process's libmpi, or an empty string if unknown or not Open MPI.
std::string mpi_library_file();

// Returns the interfaces that are up and have an address reachable from other hosts, as "eth0 10.0.0.1, eth1 10.1.0.1".
std::string list_interfaces(const ifaddrs* list);

// Guards the initialization of MPI. If MPI_Init fails, MPI prints its own messages and calls _exit(). MpiStart
// intercepts this call, prints the environment variables that configure MPI, and sets the exit code to
// kUserErrorExitCode. If MPZERO_START_FILE is set, only the rank that creates this file prints the report. Scripts
// check for this file, because mpirun replaces the exit code. If initialization takes longer than `patience`, the
// process ends with a failure. At most one MpiStart may exist at a time.
class MpiStart {
 public:
  MpiStart(const Environment& environment, std::chrono::milliseconds patience, const std::string& mpi);
  ~MpiStart();
  MpiStart(const MpiStart&) = delete;
  MpiStart& operator=(const MpiStart&) = delete;

 private:
  Deadline deadline_;
};

// Creates MPZERO_START_FILE.ok, which tells scripts that MPI is initialized. The file is needed because Slurm may kill
// all ranks before any of them reports that MPI aborted. Must be called by only one rank.
void confirm_start(const Environment& environment);

// Reports that MPI initialization failed. An MpiStart must exist. `reason`: MPI's error message.
void report_failed_start(const std::string& reason);

}  // namespace mpzero::parallel
