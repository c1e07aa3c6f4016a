#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mpzero::doctor {

// Severity, in rising order.
enum class Status : uint8_t {
  kOk,
  kWarning,  // a run works, slower or with less room than it could
  kFailure   // a run fails, hangs, or is slower by half
};

// "ok", "warning" or "failure".
const char* name(Status status);

// The result of one check of one host.
struct Finding {
  std::string check;  // "memlock", "gpus"
  Status status = Status::kOk;
  std::string message;  // what was seen, with numbers
  std::string remedy;   // what to do; empty if all is well
  bool of_job = false;  // a failure that replacing this host would not fix
};

struct HostReport {
  std::string host;  // the name that Slurm's --exclude and --nodelist know
  std::vector<Finding> findings;
};

Finding ok(std::string check, std::string message);
Finding warning(std::string check, std::string message, std::string remedy);
Finding failure(std::string check, std::string message, std::string remedy);

// The worst of the findings.
Status worst(const std::vector<Finding>& findings);

// Marks the failures that are the job's: those of its settings or its checkpoint folder, and those found on all of
// several hosts.
void tell_job_from_hosts(std::vector<HostReport>& reports);

// EXIT_SUCCESS without a failure; kUserErrorExitCode if all failures are the job's, so that the user has to change
// something; kFailureExitCode if a host should be excluded. Call after tell_job_from_hosts().
int exit_code(const std::vector<HostReport>& reports);

}  // namespace mpzero::doctor
