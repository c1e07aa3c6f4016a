#include "app/plan/estimate/plan_machine.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/gpu/gpu_models.hpp"
#include "app/machine/cpu_share.hpp"
#include "app/machine/host_limits.hpp"
#include "app/machine/instances.hpp"
#include "app/plan/calibration_file.hpp"
#include "app/plan/estimate/plan_error.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/words.hpp"
#include "parallel/host/core_assignment.hpp"

namespace mpzero::plan {
namespace {

// Latencies of ring and tree steps with NCCL's Simple protocol, from the table hwLatencies in NCCL 2.28.9
// (graph/tuning.cc).
constexpr double kNvlinkHop = 3.4e-6, kPcieHop = 5.7e-6, kNetworkHop = 14e-6;
// Assumed, because sockets wake threads on both sides.
constexpr double kTcpHop = 40e-6;
// NCCL's baseLatencies (same file): 8.4 us.
constexpr double kStart = 1e-5;
// Fractions of a link's rate that collectives reach. docs/plan.md lists the sources and marks estimates. NVLink: 360 to
// 370 of 450 GB/s on H100s, and 231 of 300 GB/s on A100s. EFA with GPUDirect: 350 to 357 of 400 GB/s in all-reduces of
// 8 GB on 4 to 16 p5.48xlarge. PCIe is an estimate: without peer access, each byte crosses PCIe twice.
constexpr double kOfNvlink = 0.78, kOfEfa = 0.85, kOfPcie = 0.4, kOfTcp = 0.8;
// Estimated limits in Gb/s of traffic through host memory, from hosts with 100 Gb/s: EFA reaches 50 to 60 Gb/s on 8 to
// 32 p3dn.24xlarge, and sockets reach 32 to 48 Gb/s between four hosts with the best number of connections.
constexpr double kMostEfaThroughHost = 50, kMostTcp = 40;
// Rate of an all-to-all over sockets relative to a ring. Messages have 128 KiB (NCCL_P2P_NET_CHUNKSIZE), compared with
// 512 KiB in a ring (NCCL_BUFFSIZE over 8 steps). Measured: 2.0 and 3.0 GB/s with NCCL's default connections, 6.1 and
// 11 GB/s with more connections (bench/RESULTS.md, "Two hosts").
constexpr double kAllToAllOfTcp = 0.6;
// Sockets use the interface of a single network card.
constexpr double kTcpGigabits = 100;

struct Network {
  double gigabits;  // sum over all cards of a host
  bool efa;
  bool direct = true;  // GPUDirect: transfers between GPU and EFA bypass host memory
};

double collective_gigabits(const Network& network) {
  if (!network.efa) return std::min(kMostTcp, kOfTcp * network.gigabits);
  return network.direct ? kOfEfa * network.gigabits : std::min(kMostEfaThroughHost, kOfEfa * network.gigabits);
}

std::string basis_of(const Network& network) {
  if (network.efa && network.direct) return "from measurements published for p5.48xlarge";
  const double share = network.efa ? kOfEfa : kOfTcp, most = network.efa ? kMostEfaThroughHost : kMostTcp;
  if (share * network.gigabits <= most) return "an estimate";
  return fmt::format("an estimate: {} reaches at most {:g} of {:g} Gb/s",
                     network.efa ? "EFA through host memory" : "TCP", most, network.gigabits);
}

// Returns the error of the links that determine the time of a collective.
double error_of(const Network& network, int nodes, bool peer_access) {
  if (nodes > 1) return network.efa && network.direct ? kErrorOfPublished : kErrorOfEstimate;
  return peer_access ? 0 : kErrorOfEstimate;
}

Links links_of(double nvlink_gigabytes, double pcie_gigabytes, const Network& network) {
  const double between = 1e9 / 8 * collective_gigabits(network);
  return {
      .within_bytes_per_second = 1e9 * (nvlink_gigabytes > 0 ? kOfNvlink * nvlink_gigabytes : kOfPcie * pcie_gigabytes),
      .within_hop_seconds = nvlink_gigabytes > 0 ? kNvlinkHop : kPcieHop,
      .between_bytes_per_second = between,
      .between_all_to_all_bytes_per_second = network.efa ? between : kAllToAllOfTcp * between,
      .between_hop_seconds = network.efa ? kNetworkHop : kTcpHop,
      .start_seconds = kStart,
      .peer_access = nvlink_gigabytes > 0};
}

int64_t memory_of(const std::string& gpu, int gigabytes) {
  const GpuModel* const model = find_gpu_model(fmt::format("{} {}GB", gpu, gigabytes));
  if (model != nullptr) return static_cast<int64_t>(model->gibibytes * (1 << 30));
  return gigabytes * int64_t{1'000'000'000};
}

// Assumes the memory bandwidth of the largest instance with the same GPU.
void assume_host(PlanMachine& machine) {
  int most = 0;
  for (const doctor::Instance& instance : doctor::all_instances()) {
    if (instance.gpu != machine.gpu || instance.gpu_gigabytes != machine.gpu_gigabytes) continue;
    if (instance.gpus <= most || instance.host_gigabytes <= 0) continue;
    most = instance.gpus;
    machine.assumed_host = instance.type;
    machine.assumed_host_bytes_per_second = instance.host_gigabytes * 1e9 / instance.gpus;
  }
}

// `nvlink`, `pcie`: GB/s of a GPU.
PlanMachine gpu_machine(const std::string& name, std::string_view gpu, int gigabytes, int nodes, int gpus,
                        double nvlink, double pcie, const Network& network) {
  return {.name = name,
          .gpu = std::string(gpu),
          .nodes = nodes,
          .gpus = gpus,
          .gpu_gigabytes = gigabytes,
          .gpu_bytes = memory_of(std::string(gpu), gigabytes),
          .efa = network.efa,
          .links = links_of(nvlink, pcie, network),
          .network_basis = basis_of(network),
          .network_error = error_of(network, nodes, nvlink > 0)};
}

PlanMachine machine_of_gpu(const std::string& asked, int per_host, int nodes, bool efa, double gigabits) {
  std::string name = asked;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const GpuModel* const found = find_gpu_model(name);
  if (found == nullptr || found->gigabytes == 0) {
    std::vector<std::string> known;
    for (const GpuModel& model : all_gpu_models()) {
      if (model.gigabytes == 0) continue;
      const bool first = std::ranges::none_of(known, [&](const auto& one) { return one == model.name; });
      known.push_back(first ? std::string(model.name) : fmt::format("{}-{}GB", model.name, model.gigabytes));
    }
    throw_user_error("--gpu {} is unknown; use one of {}, or pass --instance.", asked, fmt::join(known, ", "));
  }
  PlanMachine machine = gpu_machine(name, found->name, found->gigabytes, nodes, per_host, found->nvlink, found->pcie,
                                    {.gigabits = gigabits, .efa = efa, .direct = found->nvlink > 0});
  assume_host(machine);
  return machine;
}

// Estimated accesses to host memory per byte in a transfer between ranks: a copy into a shared buffer and a copy out of
// the buffer, each with a read and a write. Used if the calibration has no collectives.
constexpr double kPassesOfCopy = 4;
// Assumed latency of a message between processes of a host (Open MPI's shared memory), and the time that the sending
// thread takes to start a message.
constexpr double kMessageHop = 5e-6, kMessageStart = 2e-5;

PlanMachine cpu_machine(const std::string& name, const std::string& processor, int threads, int nodes, int per_host,
                        double host_rate, const Network& network) {
  const double between = 1e9 / 8 * collective_gigabits(network);
  return {.name = name,
          .processor = processor,
          .threads = threads,
          .nodes = nodes,
          .gpus = per_host,
          .host_bytes_per_second = host_rate,
          .efa = network.efa,
          .links = {.within_bytes_per_second = kOfHostMemory * host_rate / kPassesOfCopy / per_host,
                    .within_hop_seconds = kMessageHop,
                    .between_bytes_per_second = between,
                    .between_all_to_all_bytes_per_second = between,
                    .between_hop_seconds = network.efa ? kNetworkHop : kTcpHop,
                    .start_seconds = kMessageStart,
                    .peer_access = false},
          .network_basis = basis_of(network),
          .network_error = per_host * nodes > 1 ? kErrorOfEstimate : 0};
}

// Assumed for an unknown host: one socket with eight channels of DDR4-3200.
constexpr double kUnknownHostRate = 205e9;

// Suggests only types that train on `device`; for GPUs, all types.
[[noreturn]] void throw_no_instance(const std::string& type, at::DeviceType device) {
  std::vector<std::string> known, sizes;  // sizes: of the instance family "p5"
  for (const doctor::Instance& one : doctor::all_instances()) {
    if (device == at::kCUDA || one.gpus == 0) known.emplace_back(one.type);
  }
  std::ranges::copy_if(known, std::back_inserter(sizes), [&](const auto& one) { return one.starts_with(type + "."); });
  if (sizes.size() > 1) throw_user_error("--instance {} is unknown; use one of {}.", type, fmt::join(sizes, ", "));
  if (const auto nearest = sizes.empty() ? nearest_name(type, known) : sizes.front()) {
    throw_user_error("--instance {} is unknown; did you mean {}?", type, *nearest);
  }
  throw_user_error("--instance {} is unknown; docs/ec2.md lists the types.", type);
}

}  // namespace

std::string PlanMachine::device_name() const {
  return is_cpu() ? processor : fmt::format("{} {}GB", gpu, gpu_gigabytes);
}

PlanMachine machine_of_instance(const std::string& type, int nodes, const std::string& network, at::DeviceType device,
                                std::optional<int> per_host) {
  const std::optional<doctor::Instance> instance = doctor::find_instance(type);
  if (!instance) throw_no_instance(type, device);
  const bool cpu = instance->gpus == 0;
  if (cpu && device == at::kCUDA) {
    throw_user_error("--instance {} has no GPUs; use --device cpu to train on its CPUs.", type);
  }
  if (!cpu && device == at::kCPU) throw_user_error("--instance {} has GPUs; remove --device cpu.", type);
  const bool has_efa = cpu || instance->efa_devices > 0;
  if (network == "efa" && !has_efa) {
    throw_user_error("--network efa: {} has no EFA; remove the flag, or use a larger instance.", type);
  }
  const bool efa = network != "socket" && has_efa;
  // Among the types for which NCCL's plugin does not require GPUDirect, only the P types support it (aws-ofi-nccl issue
  // 547).
  const Network cards{.gigabits = efa ? instance->gigabits : std::min(instance->gigabits, kTcpGigabits),
                      .efa = efa,
                      .direct = instance->gpu_direct || type.starts_with("p")};
  const double host_rate = instance->host_gigabytes * 1e9;
  PlanMachine machine;
  if (cpu) {
    const int ranks = per_host.value_or(instance->sockets);
    const int threads = std::max(1, instance->cores / ranks);
    machine = cpu_machine(type, instance->processor, threads, nodes, ranks, host_rate, cards);
  } else {
    machine = gpu_machine(type, instance->gpu, instance->gpu_gigabytes, nodes, instance->gpus,
                          instance->nvlink_gigabytes, instance->pcie_gigabytes, cards);
  }
  machine.host_bytes = int64_t{instance->host_gibibytes} << 30;
  machine.host_bytes_per_second = host_rate;
  machine.pcie_bytes_per_second = instance->pcie_gigabytes * 1e9;
  return machine;
}

PlanMachine machine_of_run(const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host, const std::string& type,
                           const std::string& network) {
  const std::optional<doctor::Instance> instance = doctor::find_instance(type);
  PlanMachine machine = instance && instance->gpus > 0
                            ? machine_of_instance(type, hosts, network)
                            : machine_of_gpu(gpu, per_host, hosts, network == "efa", kTcpGigabits);
  machine.gpus = per_host;
  machine.gpu_bytes = gpu_bytes;
  return machine;
}

PlanMachine machine_of_cpu_run(const std::string& processor, int threads, int hosts, int per_host,
                               const std::string& network) {
  return cpu_machine(processor, processor, threads, hosts, per_host, kUnknownHostRate,
                     {.gigabits = kTcpGigabits, .efa = network == "efa", .direct = false});
}

namespace {

// Returns hosts like the calibrated host or, without a calibration, like this machine.
PlanMachine like_calibrated_or_here(const std::string& calibration, int nodes, int ranks, const std::string& network) {
  const std::string here = doctor::processor_name();
  std::string processor = here;
  int threads = 0;
  if (!calibration.empty()) {
    const CalibrationData data = read_calibration(calibration);
    processor = data.device;
    threads = std::max(1, data.host.ranks * data.host.threads / ranks);
  } else {
    const auto topology = parallel::CpuTopology::of_this_machine();
    const std::vector<std::vector<int>> cores(static_cast<size_t>(ranks), topology.cores());
    threads = share_cpu(topology, cores, 0, cpu_limits(parallel::process_environment, allowed_cores())).threads;
  }
  PlanMachine machine = machine_of_cpu_run(processor, threads, nodes, ranks, network);
  if (processor == here) machine.host_bytes = available_host_bytes();
  return machine;
}

nlohmann::json read_prices(const std::string& file) {
  const std::optional<std::string> text = read_json_text(file, kConfigurationLimits);
  if (!text) throw_user_error("--prices {} cannot be read; check the path.", file);
  const nlohmann::json prices = parse_user_json(*text, file, kConfigurationLimits);
  if (!prices.is_object()) {
    throw_user_error("--prices {} must be a JSON object of instance types and prices, e.g. {{\"p5.48xlarge\": 55.04}}.",
                     file);
  }
  return prices;
}

}  // namespace

void set_network_rate(PlanMachine& machine, double gigabytes) {
  Links& links = machine.links;
  links.between_all_to_all_bytes_per_second *= 1e9 * gigabytes / links.between_bytes_per_second;
  links.between_bytes_per_second = 1e9 * gigabytes;
  machine.network_basis = "from --network_rate";
  machine.network_error = 0;
}

std::string unknown_in_price_file(const std::string& file, const std::string& name) {
  constexpr size_t kShown = 3;
  std::vector<std::string> known = {name}, unknown;
  for (const doctor::Instance& instance : doctor::all_instances()) known.emplace_back(instance.type);
  const nlohmann::json prices = read_prices(file);
  for (const auto& [type, price] : prices.items()) {
    if (std::ranges::find(known, type) != known.end()) continue;
    const std::optional<std::string> near = nearest_name(type, known);
    unknown.push_back(near ? fmt::format("{} (did you mean {}?)", type, *near) : type);
  }
  if (unknown.empty()) return "";
  const size_t shown = std::min(unknown.size(), kShown);
  return fmt::format("--prices {} contains unknown instance types, which are ignored: {}{}.", file,
                     fmt::join(unknown.begin(), unknown.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     unknown.size() > shown ? fmt::format(" and {} more", unknown.size() - shown) : "");
}

std::optional<double> price_in_file(const std::string& file, const std::string& name) {
  const nlohmann::json prices = read_prices(file);
  const auto found = prices.find(name);
  if (found == prices.end()) return std::nullopt;
  if (!found->is_number() || found->get<double>() < 0) {
    throw_user_error("--prices {}: the price of {} is not a number; write the price per host-hour.", file, name);
  }
  return found->get<double>();
}

PlanMachine find_machine(const HostOptions& options, const std::string& network, std::optional<int> per_host,
                         at::DeviceType device) {
  const int nodes = static_cast<int>(options.nodes), ranks = per_host.value_or(1);
  PlanMachine machine =
      !options.instance.empty() ? machine_of_instance(options.instance, nodes, network, device, per_host)
      : options.gpu.empty()
          ? like_calibrated_or_here(options.calibration, nodes, ranks, network)
          : machine_of_gpu(options.gpu, ranks, nodes, network == "efa", options.host_gigabits.value_or(kTcpGigabits));
  if (options.host_memory) machine.host_bytes = static_cast<int64_t>(*options.host_memory * (int64_t{1} << 30));
  machine.price = options.prices.empty() ? options.price : price_in_file(options.prices, machine.name);
  if (options.network_rate) set_network_rate(machine, *options.network_rate);
  return machine;
}

}  // namespace mpzero::plan
