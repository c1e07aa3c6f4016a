#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "parallel/mpi/deadline.hpp"

struct ifaddrs;

namespace mpzero::parallel {

// Call before MPI_Init. In an srun step with one task, unsets Slurm's and PMI's variables, since that task may have
// started this process, such as the shell of `srun --pty bash`: MPI would join the step in place of the shell, which
// works once, or look for a PMI that this Slurm lacks. Keeps the Slurm variables that mpzero reads.
void leave_launcher(const Environment& environment);

// A message if OPAL_PREFIX refers to another Open MPI than `library`, the libmpi of this process; std::nullopt if it
// does not, or is not set.
std::optional<std::string> find_prefix_problem(const Environment& environment, const std::string& library);

// The path of this process's libmpi; empty if unknown or not Open MPI.
std::string mpi_library_file();

// "eth0 10.0.0.1, eth1 10.1.0.1": the interfaces in the list that are up and have an address reachable from other
// hosts.
std::string list_interfaces(const ifaddrs* list);

// Guards the start of MPI. If MPI_Init fails, MPI prints its own messages and ends the process: this object then
// reports the variables that configure MPI, in one sentence, and the process exits with kUserErrorExitCode. It also
// creates the file MPZERO_START_FILE, if set, which tells scripts that the configuration is at fault (mpirun returns a
// status of its own); only the rank that creates it reports. A start that takes longer than `patience` ends the process
// as a failure. One at a time.
class MpiStart {
 public:
  MpiStart(const Environment& environment, std::chrono::milliseconds patience, const std::string& mpi);
  ~MpiStart();
  MpiStart(const MpiStart&) = delete;
  MpiStart& operator=(const MpiStart&) = delete;

 private:
  Deadline deadline_;
};

// Creates MPZERO_START_FILE.ok, which tells scripts that MPI has started: when MPI aborts, Slurm may kill every rank
// before it reports. Called by one rank.
void confirm_start(const Environment& environment);

// Reports a failed start of MPI. Requires an MpiStart; `reason`: MPI's error.
void report_failed_start(const std::string& reason);

}  // namespace mpzero::parallel
