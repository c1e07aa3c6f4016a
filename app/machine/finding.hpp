#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
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

// Whose fault a failed check is.
enum class Fault : uint8_t {
  kHost,    // the host's, however many hosts fail: another host may work
  kShared,  // the job's if all of several hosts fail: its settings, its image, or what the cluster sets on all hosts
  kFolder,  // the job's if all hosts fail, also a single one: a folder that all hosts share
  kJob      // the job's
};

struct CheckInfo {
  std::string_view name;
  Fault fault;
};

// All checks of the doctor.
inline constexpr std::array kChecks = {
    CheckInfo{"launch", Fault::kJob},
    CheckInfo{"instance", Fault::kShared},
    CheckInfo{"gpus", Fault::kHost},
    CheckInfo{"no_gpus", Fault::kShared},  // requested, and none is there
    CheckInfo{"ranks_per_gpu", Fault::kShared},
    CheckInfo{"driver", Fault::kShared},
    CheckInfo{"gpu_memory_errors", Fault::kHost},
    CheckInfo{"throttling", Fault::kHost},
    CheckInfo{"pcie", Fault::kHost},
    CheckInfo{"gpu_memory", Fault::kHost},
    CheckInfo{"cuda", Fault::kHost},
    CheckInfo{"libcuda", Fault::kShared},
    CheckInfo{"gpu_kernels", Fault::kShared},
    CheckInfo{"efa_devices", Fault::kShared},
    CheckInfo{"efa_ports", Fault::kHost},
    CheckInfo{"libfabric", Fault::kShared},
    CheckInfo{"gpudirect", Fault::kShared},
    CheckInfo{"nccl_plugin", Fault::kShared},
    CheckInfo{"host", Fault::kHost},  // its kernel does not respond
    CheckInfo{"memlock", Fault::kShared},
    CheckInfo{"open_files", Fault::kShared},
    CheckInfo{"shared_memory", Fault::kShared},
    CheckInfo{"host_memory", Fault::kShared},
    CheckInfo{"cpu_frequency", Fault::kShared},
    CheckInfo{"cpu_instructions", Fault::kShared},
    CheckInfo{"numa_domains", Fault::kShared},
    CheckInfo{"huge_pages", Fault::kShared},
    CheckInfo{"clock", Fault::kHost},
    CheckInfo{"checkpoint_space", Fault::kFolder},
    CheckInfo{"checkpoint_write", Fault::kFolder},
    CheckInfo{"report", Fault::kFolder},  // its folder does not respond
    CheckInfo{"versions", Fault::kShared},
    CheckInfo{"network", Fault::kJob},
    CheckInfo{"nccl_network", Fault::kShared},
    CheckInfo{"bandwidth", Fault::kShared},
    CheckInfo{"bandwidth_inside", Fault::kHost},
    CheckInfo{"bandwidth_between", Fault::kShared},
};

// The name of one of kChecks; any other does not compile.
class Check {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a check is written as its name
  consteval Check(const char* name) : name_(name) {
    if (std::none_of(kChecks.begin(), kChecks.end(), [&](const CheckInfo& check) { return check.name == name_; })) {
      throw "kChecks does not list this check";
    }
  }
  std::string text() const { return std::string(name_); }

 private:
  std::string_view name_;
};

// Whose fault a failure of `check` is; kHost if kChecks does not list it.
Fault fault_of(std::string_view check);

// The result of one check of one host.
struct Finding {
  std::string check;  // the name of one of kChecks
  Status status = Status::kOk;
  std::string message;  // what was seen, with numbers
  std::string remedy;   // what to do; empty if all is well
  bool of_job = false;  // a failure that replacing this host would not fix
};

struct HostReport {
  std::string host;  // the name that Slurm's --exclude and --nodelist know
  std::vector<Finding> findings;
};

Finding ok(Check check, std::string message);
Finding warning(Check check, std::string message, std::string remedy);
Finding failure(Check check, std::string message, std::string remedy);

// The worst of the findings.
Status worst(const std::vector<Finding>& findings);

// Marks the failures that are the job's, according to the fault of their check (kChecks).
void tell_job_from_hosts(std::vector<HostReport>& reports);

// EXIT_SUCCESS without a failure; kUserErrorExitCode if all failures are the job's, so that the user has to change
// something; kFailureExitCode if a host should be excluded. Call after tell_job_from_hosts().
int exit_code(const std::vector<HostReport>& reports);

}  // namespace mpzero::doctor
