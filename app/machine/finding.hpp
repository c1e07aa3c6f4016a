#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace mpzero::doctor {

// Severity, in rising order.
enum class Status : uint8_t {
  kOk,
  kWarning,  // a run works, but slower or with less headroom
  kFailure   // a run fails, hangs, or is slower by half
};

// "ok", "warning" or "failure".
const char* name(Status status);

// What a failed check is attributed to.
enum class Fault : uint8_t {
  kHost,    // the host, however many hosts fail: another host may work
  kShared,  // the job if all of several hosts fail: its settings, its image, or cluster-wide settings
  kFolder,  // the job if all hosts fail, even a single one: a folder that all hosts share
  kJob      // the job
};

struct CheckInfo {
  std::string_view name;
  Fault fault;
  std::string_view remedy = {};  // empty: depends on the finding
};

// All checks of the doctor.
inline constexpr auto kChecks = std::to_array<CheckInfo>({
    {"launch", Fault::kJob},
    {"instance", Fault::kShared,
     "make the host's /sys/devices/virtual/dmi/id visible in the container, or set OFI_NCCL_FORCE_PRODUCT_NAME to the "
     "type"},
    {"gpus", Fault::kHost, "reboot or replace the node; `nvidia-smi` and `dmesg | grep -i nvrm` show details"},
    {"ranks_per_gpu", Fault::kShared, "start one rank per GPU"},
    {"driver", Fault::kShared,
     "install NVIDIA's driver, or start the container with its runtime (docker run --gpus all)"},
    {"gpu_memory_errors", Fault::kHost},
    {"throttling", Fault::kHost, "one slow GPU slows all ranks: exclude the node, and check its cooling and power"},
    {"pcie", Fault::kHost, "copies to the host are slower in proportion: reboot or replace the node"},
    {"gpu_memory", Fault::kHost, "stop the processes that `nvidia-smi` lists"},
    {"cuda", Fault::kHost},
    {"gpu_kernels", Fault::kShared,
     "build them: ./train-singlenode.sh --build-only on a machine with GPUs, or anywhere with "
     "MPZERO_GPU_ARCHITECTURES=all"},
    {"efa_devices", Fault::kShared},
    {"efa_ports", Fault::kHost, "reboot or replace the node if the port should be cabled; `dmesg` shows the reason"},
    {"libfabric", Fault::kShared, "install Amazon's EFA software (libfabric in /opt/amazon/efa)"},
    {"nccl_plugin", Fault::kShared,
     "install aws-ofi-nccl (part of the EFA software) or add its folder to LD_LIBRARY_PATH"},
    {"host", Fault::kHost},  // its kernel does not respond
    {"memlock", Fault::kShared,
     "make it unlimited: \"* soft memlock unlimited\" and \"* hard memlock unlimited\" in /etc/security/limits.conf, "
     "LimitMEMLOCK=infinity in slurmd's unit, docker run --ulimit memlock=-1"},
    {"open_files", Fault::kShared,
     "ulimit -n 65536 (/etc/security/limits.conf, LimitNOFILE= for slurmd, --ulimit nofile for containers)"},
    {"shared_memory", Fault::kShared,
     "mount -o remount,size=50% /dev/shm (mount -t tmpfs tmpfs /dev/shm if it is missing); docker run --shm-size=8g or "
     "--ipc=host; a medium Memory volume in Kubernetes"},
    {"host_memory", Fault::kShared,
     "sbatch --exclusive --mem=0, and stop other processes; the host optimizer needs 18 bytes per parameter"},
    {"cpu_instructions", Fault::kShared},
    {"numa_domains", Fault::kShared},
    {"huge_pages", Fault::kShared,
     "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, as root on the host itself"},
    {"clock", Fault::kHost,
     "check `chronyc sources` (EC2's clock is 169.254.169.123); logs, file times and munge rely on the clock"},
    {"checkpoint_space", Fault::kFolder,
     "free space, or use another --checkpoint_dir; a checkpoint needs 12 to 18 bytes per parameter"},
    {"checkpoint_write", Fault::kFolder,
     "make it writable by the job's user, free space there, or use another --checkpoint_dir"},
    {"report", Fault::kFolder},  // its folder does not respond
    {"versions", Fault::kShared, "start all nodes from one image, and share mpzero's build folder between them"},
    {"network", Fault::kJob, "see docs/ec2.md"},
    {"nccl_network", Fault::kShared},
    {"bandwidth", Fault::kShared, "see docs/ec2.md"},
    {"bandwidth_inside", Fault::kHost,
     "see the network in the log of `mpzero train`, and its requirements in docs/ec2.md"},
    {"bandwidth_between", Fault::kShared,
     "see the network in the log of `mpzero train`, and its requirements in docs/ec2.md: EFA on every card, a cluster "
     "placement group, no other job on the nodes"},
});

// The name of one of kChecks; any other does not compile.
class Check {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a check is written as its name
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

// What a failure of `check` is attributed to; kHost if kChecks does not list it.
Fault fault_of(std::string_view check);

// The result of one check of one host.
struct Finding {
  std::string check;  // the name of one of kChecks
  Status status = Status::kOk;
  std::string message;  // what was seen, with numbers
  std::string remedy;   // what to do; empty if all is well
  bool of_job = false;  // a failure that replacing this host would not fix

  static auto fields(auto& one) {  // base/collectives.hpp
    return std::tie(one.check, one.status, one.message, one.remedy, one.of_job);
  }
};

struct HostReport {
  std::string host;  // the name that Slurm's --exclude and --nodelist know
  std::vector<Finding> findings;

  static auto fields(auto& report) { return std::tie(report.host, report.findings); }
};

Finding ok(Check check, std::string message);
// With the remedy of kChecks if `remedy` is empty.
Finding warning(Check check, std::string message, std::string remedy = {});
Finding failure(Check check, std::string message, std::string remedy = {});

// The worst of the findings.
Status worst(const std::vector<Finding>& findings);

// Marks the failures that kChecks attributes to the job.
void tell_job_from_hosts(std::vector<HostReport>& reports);

// EXIT_SUCCESS without a failure; kUserErrorExitCode if all failures are the job's, so that the user has to change
// something; kFailureExitCode if a host should be excluded. Call after tell_job_from_hosts().
int exit_code(const std::vector<HostReport>& reports);

}  // namespace mpzero::doctor
