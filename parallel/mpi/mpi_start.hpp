#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "parallel/mpi/deadline.hpp"

struct ifaddrs;

namespace mpzero::parallel {

// Before MPI_Init, in a step of srun that has one task: unsets Slurm's and PMI's variables, since this process may be
// started by that task, such as the shell of `srun --pty bash`. MPI would join the step in place of the shell, once, or
// would look for a PMI that this Slurm does not have. What mpzero itself reads of Slurm's variables stays.
void leave_launcher(const Environment& environment);

// Why OPAL_PREFIX names another Open MPI than `library`, the libmpi of this process; std::nullopt: it does not, or is
// not set.
std::optional<std::string> find_prefix_problem(const Environment& environment, const std::string& library);

// The file of the libmpi of this process.
std::string mpi_library_file();

// "eth0 10.0.0.1, eth1 10.1.0.1": the interfaces of the list that are up and have an address that others may reach.
std::string list_interfaces(const ifaddrs* list);

// Guards the start of MPI. If MPI_Init fails, MPI prints its own messages and ends the process: this object then
// reports the variables that configure MPI, in one sentence, and the process exits with kUserErrorExitCode. The file
// that MPZERO_START_FILE names, if any, is created then, by which scripts know that the configuration is at fault
// (mpirun returns a status of its own), and by which one rank reports for all. A start that takes longer than
// `patience` ends the process as a failure. One at a time.
class MpiStart {
 public:
  MpiStart(const Environment& environment, std::chrono::milliseconds patience, const std::string& mpi);
  ~MpiStart();
  MpiStart(const MpiStart&) = delete;
  MpiStart& operator=(const MpiStart&) = delete;

 private:
  Deadline deadline_;
};

// Creates MPZERO_START_FILE.ok, by which scripts know that MPI has started: of ranks that MPI aborts, Slurm may kill
// each before it reports. Called by one rank.
void confirm_start(const Environment& environment);

// Reports that MPI could not start, as an MpiStart does, which must live; `reason`: what MPI has returned.
void report_failed_start(const std::string& reason);

}  // namespace mpzero::parallel
