#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace mpzero::doctor {

// Severity of a finding, in increasing order.
enum class Status : uint8_t {
  kOk,
  kWarning,  // the run works, but slower or with less headroom
  kFailure   // the run fails, hangs, or is at most half as fast
};

// Returns "ok", "warning" or "failure".
const char* name(Status status);

// The cause of a failed check: the host or the job.
enum class Fault : uint8_t {
  kHost,    // the host, regardless of how many hosts fail; another host may work
  kShared,  // the job (settings, image, cluster configuration) if all hosts of a multi-host job fail; else the host
  kFolder,  // the job if all hosts (or the only host) fail, because all hosts share the folder; else the host
  kJob      // the job
};

struct CheckInfo {
  std::string_view name;
  Fault fault;
  std::string_view remedy = {};  // empty if the remedy depends on the finding
};

// All checks of mpzero doctor.
inline constexpr auto kChecks = std::to_array<CheckInfo>({
    {"launch", Fault::kJob},
    {"instance", Fault::kShared,
     "make the host's /sys/devices/virtual/dmi/id visible in the container, or set OFI_NCCL_FORCE_PRODUCT_NAME to the "
     "instance type"},
    {"gpus", Fault::kHost, "reboot or replace the node; `nvidia-smi` and `dmesg | grep -i nvrm` show details"},
    {"ranks_per_gpu", Fault::kShared, "start one rank per GPU"},
    {"driver", Fault::kShared,
     "install NVIDIA's driver, or start the container with NVIDIA's runtime (docker run --gpus all)"},
    {"gpu_memory_errors", Fault::kHost},
    {"throttling", Fault::kHost, "exclude the node, and check its cooling and power; one slow GPU slows all ranks"},
    {"gpu_memory", Fault::kHost, "stop the processes that `nvidia-smi` lists"},
    {"cuda", Fault::kHost},
    {"gpu_kernels", Fault::kShared,
     "run ./train-singlenode.sh --build-only on a machine with GPUs, or on any machine with "
     "MPZERO_GPU_ARCHITECTURES=all"},
    {"efa_devices", Fault::kShared},
    {"efa_ports", Fault::kHost, "reboot or replace the node if the port should be connected; `dmesg` shows the reason"},
    {"libfabric", Fault::kShared, "install Amazon's EFA software (libfabric in /opt/amazon/efa)"},
    {"nccl_plugin", Fault::kShared,
     "install aws-ofi-nccl (part of the EFA software) or add its folder to LD_LIBRARY_PATH"},
    {"host", Fault::kHost},  // the kernel does not respond
    {"memlock", Fault::kShared,
     "remove the limit: \"* soft memlock unlimited\" and \"* hard memlock unlimited\" in /etc/security/limits.conf, "
     "LimitMEMLOCK=infinity in slurmd's unit, docker run --ulimit memlock=-1"},
    {"open_files", Fault::kShared,
     "raise the limit: ulimit -n 65536 (/etc/security/limits.conf, LimitNOFILE= for slurmd, --ulimit nofile for "
     "containers)"},
    {"shared_memory", Fault::kShared,
     "enlarge /dev/shm: mount -o remount,size=50% /dev/shm (mount -t tmpfs tmpfs /dev/shm if it is missing); "
     "docker run --shm-size=8g or --ipc=host; in Kubernetes, an emptyDir with medium Memory"},
    {"host_memory", Fault::kShared,
     "use `sbatch --exclusive --mem=0`, and stop other processes; the host optimizer needs 18 bytes per parameter"},
    {"clock", Fault::kHost,
     "check `chronyc sources` (EC2's time server is 169.254.169.123); logs, file times and munge depend on the clock"},
    {"checkpoint_space", Fault::kFolder,
     "free up space or use a different --checkpoint_dir; a checkpoint needs 12 to 18 bytes per parameter"},
    {"checkpoint_write", Fault::kFolder,
     "make the folder writable by the job's user, free up space, or use a different --checkpoint_dir"},
    {"report", Fault::kFolder},  // the folder does not respond
    {"versions", Fault::kShared, "start all nodes from the same image, and share mpzero's build folder"},
    {"network", Fault::kJob, "see docs/ec2.md"},
    {"nccl_network", Fault::kShared},
    {"bandwidth", Fault::kShared, "see docs/ec2.md"},
    {"bandwidth_inside", Fault::kHost,
     "compare the network in the log of `mpzero train` with the requirements in docs/ec2.md"},
    {"bandwidth_between", Fault::kShared,
     "compare the network in the log of `mpzero train` with the requirements in docs/ec2.md: EFA on every card, a "
     "cluster placement group, and no other jobs on the nodes"},
});

// The name of a check in kChecks. A name that is not in kChecks is a compile-time error.
class Check {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): callers pass the name of a check
  consteval Check(const char* name)
      : info_(
            std::find_if(kChecks.begin(), kChecks.end(), [&](const CheckInfo& check) { return check.name == name; })) {
    if (info_ == kChecks.end()) throw "kChecks does not list this check";
  }
  std::string text() const { return std::string(info_->name); }
  std::string remedy() const { return std::string(info_->remedy); }

 private:
  const CheckInfo* info_;
};

// Returns the cause of a failure of `check`; kHost if kChecks does not contain `check`.
Fault fault_of(std::string_view check);

// The result of one check of one host.
struct Finding {
  std::string check;  // name of a check in kChecks
  Status status = Status::kOk;
  std::string message;  // observed values
  std::string remedy;   // empty if the status is kOk
  bool of_job = false;  // replacing this host would not fix the failure

  static auto fields(auto& one) {  // base/collectives.hpp
    return std::tie(one.check, one.status, one.message, one.remedy, one.of_job);
  }
};

struct HostReport {
  std::string host;  // host name for Slurm's --exclude and --nodelist
  std::vector<Finding> findings;

  static auto fields(auto& report) { return std::tie(report.host, report.findings); }
};

Finding ok(Check check, std::string message);
// Return a finding with the status kWarning or kFailure. If `remedy` is empty, the finding has the remedy of `check` in
// kChecks.
Finding warning(Check check, std::string message, std::string remedy = {});
Finding failure(Check check, std::string message, std::string remedy = {});

// Returns the worst status of all findings.
Status worst(const std::vector<Finding>& findings);

// Sets Finding::of_job according to kChecks.
void tell_job_from_hosts(std::vector<HostReport>& reports);

// Returns EXIT_SUCCESS if there are no failures, kUserErrorExitCode if all failures are attributed to the job, and
// kFailureExitCode if a host should be excluded. Must be called after tell_job_from_hosts().
int exit_code(const std::vector<HostReport>& reports);

}  // namespace mpzero::doctor
