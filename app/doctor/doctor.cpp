#include "app/doctor/doctor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "app/doctor/bandwidth.hpp"
#include "app/doctor/cuda_start.hpp"
#include "app/doctor/doctor_options.hpp"
#include "app/doctor/gpus.hpp"
#include "app/doctor/hang_watch.hpp"
#include "app/doctor/host.hpp"
#include "app/doctor/report.hpp"
#include "app/doctor/versions.hpp"
#include "app/machine/device.hpp"
#include "app/machine/fabric.hpp"
#include "app/machine/gpu_promise.hpp"
#include "app/machine/instances.hpp"
#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/gpu_kernels.hpp"
#include "base/output.hpp"
#include "io/files/atomic_file.hpp"
#include "parallel/comm/library_versions.hpp"
#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/comm/nccl_communicator.hpp"
#include "parallel/mpi/clock_offset.hpp"
#include "parallel/mpi/launch_check.hpp"
#include "parallel/network/network.hpp"
#include "parallel/network/network_start.hpp"

namespace mpzero {
namespace doctor {
namespace {

constexpr Look kGpuDriver = {"gpus", "the GPU driver", "exclude the host; see `dmesg | grep -i nvrm` on the host"};
constexpr Look kCuda = {
    "cuda", "CUDA initialization",
    "exclude the host; run `dmesg | grep -i nvrm` and `systemctl status nvidia-fabricmanager` on the host for details"};
constexpr Look kFabricLibraries = {
    "libfabric", "libfabric or NCCL's libfabric plugin",
    "exclude the host; check on the host whether `fi_info -p efa` or access to a folder in LD_LIBRARY_PATH hangs"};
constexpr Look kHost = {"host", "the kernel's /proc or /sys", "exclude and reboot the host"};
constexpr Look kCheckpointFolder = {"checkpoint_write", "the file system of the --checkpoint_dir folder",
                                    "exclude the host; if all hosts hang, check the file system"};
constexpr Look kReportFolder = {"report", "the file system of the --json file",
                                "exclude the host or pass a different folder"};

// The hosts of the job, ordered by lowest rank. The lowest rank of each host runs the checks.
struct Hosts {
  std::vector<std::string> names;
  std::vector<int> leaders;
  std::vector<size_t> of_rank;  // index of each rank's host
  size_t own = 0;               // index of this rank's host
  bool leads = false;
};

Hosts group_by_host(const System& system, ProcessGroup& group) {
  const std::vector<std::string> names = all_gather(group, host_name(system));
  Hosts hosts;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    const std::string& host = names[static_cast<size_t>(rank)];
    const auto known = std::find(hosts.names.begin(), hosts.names.end(), host);
    hosts.of_rank.push_back(static_cast<size_t>(known - hosts.names.begin()));
    if (known != hosts.names.end()) continue;
    hosts.names.push_back(host);
    hosts.leaders.push_back(rank);
  }
  hosts.own = hosts.of_rank[static_cast<size_t>(group.rank())];
  hosts.leads = hosts.leaders[hosts.own] == group.rank();
  return hosts;
}

int ranks_on(const Hosts& hosts, size_t host) {
  return static_cast<int>(std::count(hosts.of_rank.begin(), hosts.of_rank.end(), host));
}

// Gathers the values of all ranks on this host.
template <class T>
std::vector<T> from_host(const Hosts& hosts, const T& own, ProcessGroup& group) {
  std::vector<T> here;
  const std::vector<T> all = all_gather(group, own);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (hosts.of_rank[rank] == hosts.own) here.push_back(all[rank]);
  }
  return here;
}

// Returns the PCI addresses of all GPUs that are visible to CUDA on these ranks.
std::vector<std::string> gpus_of(const std::vector<CudaSurvey>& surveys) {
  std::vector<std::string> all;
  for (const CudaSurvey& survey : surveys) all.insert(all.end(), survey.gpus.begin(), survey.gpus.end());
  return all;
}

// Returns this rank's index among the ranks of the host.
Asker asker(const Hosts& hosts, int rank) {
  const auto own = hosts.of_rank.begin() + rank;
  return {.index = static_cast<int>(std::count(hosts.of_rank.begin(), own, hosts.own)),
          .of = ranks_on(hosts, hosts.own)};
}

// Gathers the values of the leaders, by host.
template <class T>
std::vector<T> from_leaders(const Hosts& hosts, const T& own, ProcessGroup& group) {
  const std::vector<std::optional<T>> all = all_gather(group, hosts.leads ? std::optional(own) : std::nullopt);
  std::vector<T> values;
  values.reserve(hosts.leaders.size());
  for (const int leader : hosts.leaders) values.push_back(all[static_cast<size_t>(leader)].value());
  return values;
}

// Checks the network that a run with --network `choice` would use. Does not initialize NCCL.
Finding check_network_choice(parallel::NetworkChoice choice, const std::vector<parallel::NodeNetwork>& nodes,
                             const parallel::NodeNetwork& own, const System& system) {
  try {
    const parallel::NetworkPlan plan =
        parallel::plan_network(choice, nodes, own, parallel::process_environment, system.plugin_files);
    switch (plan.proof) {
      case parallel::NetworkPlan::Proof::kNone:
        return ok("network", "not required on one node");
      case parallel::NetworkPlan::Proof::kEfa:
        return ok("network", "EFA; the run fails if NCCL cannot use EFA");
      case parallel::NetworkPlan::Proof::kSocket:
        return warning("network", "TCP, as requested",
                       own.efa_devices > 0 ? "pass --network auto: ZeRO-3 steps are 2.2 times as fast with EFA"
                                           : "use EFA: ZeRO-3 steps are 2.2 times as fast as over TCP (docs/ec2.md)");
      case parallel::NetworkPlan::Proof::kAnything:
        return warning("network", "no node has EFA devices; NCCL uses InfiniBand if available, else TCP",
                       "use EFA: ZeRO-3 steps are 2.2 times as fast as over TCP (docs/ec2.md)");
    }
  } catch (const UserError& error) {
    return failure("network", error.what());
  }
  return {};
}

std::vector<parallel::NodeNetwork> gather_networks(const System& system, const Hosts& hosts, ProcessGroup& group) {
  const int efa = parallel::count_efa(parallel::rdma_devices(system.root));
  const std::vector<int> counts = from_leaders(hosts, efa, group);
  std::vector<parallel::NodeNetwork> nodes;
  for (size_t i = 0; i < counts.size(); ++i) {
    nodes.push_back({.host = hosts.names[i], .node = hosts.names[i], .efa_devices = counts[i]});
  }
  return nodes;
}

// Returns the clock offset of each host from the first host, on all ranks.
std::vector<double> gather_clocks(const Hosts& hosts, parallel::MpiRuntime& mpi) {
  return broadcast(mpi, parallel::measure_clock_offsets(mpi, hosts.leaders));
}

// Returns text such as "a +0.000 s, b +31.000 s" for the first hosts.
std::string list_clocks(const std::vector<std::string>& hosts, const std::vector<double>& offsets) {
  constexpr size_t kMost = 8;
  std::string list;
  for (size_t i = 0; i < std::min(hosts.size(), kMost); ++i) {
    list += fmt::format("{}{} {:+.3f} s", i == 0 ? "" : ", ", hosts[i], offsets[i]);
  }
  return hosts.size() > kMost ? fmt::format("{} and {} more", list, hosts.size() - kMost) : list;
}

// Returns the ranks that are on this rank's host according to NCCL; NCCL_HOSTID can subdivide a host. Collective.
std::unique_ptr<parallel::MpiRuntime> ranks_of_host(parallel::MpiRuntime& mpi) {
  const std::string own = parallel::look_at_network(parallel::process_environment).node;
  for (const auto& [node, rank] : all_gather(*mpi.this_machine(), std::pair(own, mpi.rank()))) {
    if (node == own) return mpi.split(rank);
  }
  throw_failure("cannot find the host of rank {}", mpi.rank());
}

std::vector<Finding> measure(const Options& options, parallel::MpiRuntime& mpi) {
  const at::Device device = choose_device(options.device, mpi).device;
  std::vector<Finding> findings;
  parallel::ProvenNetwork network;  // kept alive for the measurements
  parallel::NetworkPlan plan;
  if (device.is_cuda()) {
    plan = parallel::choose_network(options.network, mpi);
    if (plan.several_nodes) {
      network = parallel::prove_network(plan, mpi);
      const std::vector<std::string> warnings = parallel::network_warnings(plan, network.proofs);
      const std::string line = parallel::describe_network(network.proofs);
      findings.push_back(warnings.empty()
                             ? ok("nccl_network", line)
                             : warning("nccl_network", line, fmt::format("{}", fmt::join(warnings, "; "))));
    }
  }
  if (mpi.world_size() == 1) {
    findings.push_back(ok("bandwidth", "not measured with one rank; start one rank per GPU with mpirun or srun"));
    return findings;
  }
  const std::string type = instance_type(options.system);
  const auto instance = find_instance(type);
  // Use the same engine and number of channels as training.
  const auto measure_over = [&](parallel::MpiRuntime& ranks, Check check, double gigabytes, parallel::NcclEngine engine,
                                int min_channels) {
    std::unique_ptr<parallel::Communicator> communicator;
    if (device.is_cpu()) communicator = std::make_unique<parallel::MpiCommunicator>(ranks);
    if (device.is_cuda()) communicator = std::make_unique<parallel::NcclCommunicator>(ranks, engine, min_channels);
    // The specification applies only to GPUs.
    const double promised = device.is_cuda() ? gigabytes * 1e9 : 0;
    findings.push_back(judge_bandwidth(check, measure_bandwidth(*communicator, ranks, device), promised, type));
  };
  // All hosts measure the bandwidth within the host concurrently, as in training.
  const std::unique_ptr<parallel::MpiRuntime> inside = ranks_of_host(mpi);
  if (inside->world_size() > 1) {
    measure_over(*inside, "bandwidth_inside", instance ? instance->nvlink_gigabytes : 0,
                 parallel::NcclEngine::kCopyEngines, /*min_channels=*/0);
  }
  if (inside->world_size() < mpi.world_size()) {
    // Copy engines cannot reach other hosts, including hosts defined by NCCL_HOSTID.
    measure_over(mpi, "bandwidth_between", instance ? instance->gigabits / 8 : 0, parallel::NcclEngine::kKernels,
                 plan.min_channels);
  }
  return findings;
}

// Skips the measurement if a host has failed a check, because collectives may hang.
std::vector<Finding> measure_unless_broken(const Options& options, const std::vector<HostReport>& reports,
                                           parallel::MpiRuntime& mpi) {
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) {
      const bool of_storage = fault_of(finding.check) == Fault::kFolder;
      if (finding.status != Status::kFailure || of_storage || finding.check == "clock") continue;
      return {warning("bandwidth", fmt::format("not measured: {} fails on {}", finding.check, report.host),
                      "fix the failed check first")};
    }
  }
  try {
    return measure(options, mpi);
  } catch (const Error& error) {
    // An error that all ranks throw is reported with the other findings.
    if (error.scope() != ErrorScope::kAllRanks) throw;
    return {failure("bandwidth", error.what())};
  }
}

}  // namespace

Finding check_launch(const parallel::Environment& environment, int world_size) {
  const auto problem = parallel::find_launch_problem(environment, world_size, parallel::mpi_version());
  if (problem) return failure("launch", problem->message, problem->remedy);
  return ok("launch", fmt::format("{} rank{}", world_size, world_size == 1 ? "" : "s"));
}

Finding check_clock(size_t own, const std::vector<std::string>& hosts, const std::vector<double>& offsets) {
  constexpr double kNoticeable = 0.5, kHarmful = 30;
  std::vector<double> sorted = offsets;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  const auto agreeing = static_cast<size_t>(std::count_if(
      sorted.begin(), sorted.end(), [&](double offset) { return std::abs(offset - median) <= kHarmful; }));
  if (2 * agreeing <= hosts.size()) {
    return warning("clock", "no majority of hosts agrees on the time, so the correct time is unknown: " +
                                list_clocks(hosts, offsets));
  }
  const double offset = offsets[own] - median;
  const std::string seen = fmt::format("{:+.3f} s relative to the median of the hosts", offset);
  if (std::abs(offset) > kHarmful) return failure("clock", seen);
  if (std::abs(offset) > kNoticeable) return warning("clock", seen);
  return ok("clock", seen);
}

}  // namespace doctor

int run_doctor(const std::vector<std::string>& arguments, parallel::MpiRuntime& mpi) {
  using namespace doctor;
  Options options;
  run_on_all_ranks(mpi, [&] { options = parse_options(arguments); });
  const System& system = options.system;
  const Hosts hosts = group_by_host(system, mpi);
  const Job job = {.local_ranks = ranks_on(hosts, hosts.own),
                   .world_size = mpi.world_size(),
                   .hosts = static_cast<int>(hosts.names.size()),
                   .device = options.device,
                   .given_gpus = given_gpus(parallel::process_environment)};
  HostReport report{.host = hosts.names[hosts.own], .findings = {}};
  const auto add = [&](const std::vector<Finding>& findings) {
    report.findings.insert(report.findings.end(), findings.begin(), findings.end());
  };

  const JobStart start = job_start(parallel::process_environment);
  HangWatch watch(report.host, options.json, start, options.patience());
  GpuSurvey gpus;
  run_on_all_ranks(mpi, [&] {
    if (options.device == "cpu") return;
    watch.enter(kGpuDriver);
    gpus = survey_gpus(system.nvml);
    watch.leave();
  });
  gpus = merge_surveys(from_host(hosts, gpus, mpi));
  // The following checks use the GPUs.
  CudaSurvey cuda;
  run_on_all_ranks(mpi, [&] {
    if (!needs_cuda(job, gpus)) return;
    watch.enter(kCuda);
    cuda = survey_cuda(system.cuda, asker(hosts, mpi.rank()));
    watch.leave();
  });
  const std::vector<CudaSurvey> cuda_here = from_host(hosts, cuda, mpi);

  std::vector<Fact> facts;
  run_on_all_ranks(mpi, [&] {
    if (!hosts.leads) return;
    watch.enter(kReportFolder);
    // Remove reports from an earlier check of this host.
    if (!options.json.empty()) {
      std::filesystem::remove(hang_report(options.json, report.host));
      std::filesystem::remove(answer_report(options.json, report.host));
    }
    watch.enter(kFabricLibraries);
    const parallel::PluginSearch plugin =
        parallel::find_libfabric_plugin(parallel::process_environment, system.plugin_files);
    const FabricSurvey fabric = survey_fabric(libfabric_files(system, plugin));
    watch.enter(kHost);
    facts = collect_facts(system, gpus, fabric, plugin);
    const bool rdma = !parallel::rdma_devices(system.root).empty();
    constexpr int64_t kProbe = int64_t{256} << 20;
    add({check_launch(parallel::process_environment, mpi.world_size()), check_instance(system)});
    add(check_gpus(system, job, gpus, parallel::cuda_runtime_version(), gpus_of(cuda_here)));
    add({check_cuda_start(job, gpus, cuda_here), check_gpu_kernels(job, gpus, built_with_gpu_kernels())});
    add(check_fabric(system, job, !gpus.gpus.empty(), fabric, plugin));
    add(check_host(system, job, !gpus.gpus.empty(), rdma));
    watch.enter(kCheckpointFolder);
    add(check_storage(options.checkpoint_dir, options.quick ? 0 : kProbe));
    watch.leave();
  });

  add({compare_facts(hosts.own, hosts.names, from_leaders(hosts, facts, mpi))});
  const std::vector<parallel::NodeNetwork> networks = gather_networks(system, hosts, mpi);
  const std::vector<std::string> gpu_counts = from_leaders(hosts, std::to_string(gpus.gpus.size()), mpi);
  const bool any_gpu =
      std::any_of(gpu_counts.begin(), gpu_counts.end(), [](const auto& count) { return count != "0"; });
  if (any_gpu || options.network != parallel::NetworkChoice::kAuto) {
    add({check_network_choice(options.network, networks, networks[hosts.own], system)});
  }
  if (hosts.names.size() > 1) add({check_clock(hosts.own, hosts.names, gather_clocks(hosts, mpi))});
  std::vector<HostReport> reports = from_leaders(hosts, report, mpi);
  if (options.bandwidth) {
    add(measure_unless_broken(options, reports, mpi));
    reports = from_leaders(hosts, report, mpi);
  }
  tell_job_from_hosts(reports);
  run_on_all_ranks(mpi, [&] {
    if (mpi.rank() != 0) return;
    // mpirun connects ranks to a terminal even if the output is redirected to a file.
    const bool color = mpi.world_size() == 1 && isatty(STDOUT_FILENO) != 0;
    write_output(Output::kStdout, to_table(reports, {.color = color, .brief = options.quick}));
    if (!options.json.empty()) io::replace_text_file(options.json, to_json(start, reports));
  });
  return exit_code(reports);
}

}  // namespace mpzero
