#include "app/plan/command/plan_machine.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/machine/instances.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/words.hpp"

namespace mpzero::plan {
namespace {

struct GpuModel {
  std::string_view name;
  int gigabytes;     // as EC2's table has it
  double gibibytes;  // "total capacity" in PyTorch's messages
  double nvlink;     // GB/s of one GPU to the others, per direction, where it is not EC2's; 0: PCIe only
};

// NVLink: half of NVIDIA's data sheets, which count both directions.
constexpr std::array kGpus = {GpuModel{"H200", 141, 139.8, 450}, GpuModel{"H100", 80, 79.1, 450},
                              GpuModel{"A100", 40, 39.4, 300},   GpuModel{"A100", 80, 79.2, 300},
                              GpuModel{"L40S", 48, 44.4, 0},     GpuModel{"A10G", 24, 22.0, 0},
                              GpuModel{"L4", 24, 22.0, 0},       GpuModel{"B200", 179, 178.3, 900}};

// Steps of a ring and of a tree with NCCL's protocol "Simple": its own table (graph/tuning.cc, hwLat).
constexpr double kNvlinkHop = 3.4e-6, kPcieHop = 5.7e-6, kNetworkHop = 14e-6;
// Sockets wake threads on both sides. An assumption.
constexpr double kTcpHop = 40e-6;
constexpr double kStart = 1e-5;
// What of a link's rate the bytes of a collective reach. NVLink: nccl-tests on H100s, 340 to 370 of 450 GB/s. EFA: the
// same on p4d and p5, 80 to 90%. Through host memory, without access between GPUs, each byte crosses PCIe twice. TCP:
// one core copies each connection's bytes; an assumption.
constexpr double kOfNvlink = 0.78, kOfEfa = 0.85, kOfPcie = 0.4, kOfTcp = 0.45;
// The interface that sockets take is one of the cards.
constexpr double kTcpGigabits = 100;

Links links_of(double nvlink_gigabytes, double pcie_gigabytes, double gigabits, bool efa) {
  return {
      .within_bytes_per_second = 1e9 * (nvlink_gigabytes > 0 ? kOfNvlink * nvlink_gigabytes : kOfPcie * pcie_gigabytes),
      .within_hop_seconds = nvlink_gigabytes > 0 ? kNvlinkHop : kPcieHop,
      .between_bytes_per_second = 1e9 / 8 * (efa ? kOfEfa : kOfTcp) * gigabits,
      .between_hop_seconds = efa ? kNetworkHop : kTcpHop,
      .start_seconds = kStart};
}

int64_t memory_of(const std::string& gpu, int gigabytes) {
  for (const GpuModel& model : kGpus) {
    if (model.name == gpu && model.gigabytes == gigabytes) return static_cast<int64_t>(model.gibibytes * (1 << 30));
  }
  return gigabytes * int64_t{1'000'000'000};
}

PlanMachine machine_of_gpu(const std::string& name, int per_host, int nodes, bool efa, double gigabits) {
  const auto* const found =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const GpuModel& model) { return model.name == name; });
  if (found == kGpus.end()) {
    std::vector<std::string_view> known;
    for (const GpuModel& model : kGpus) {
      if (known.empty() || known.back() != model.name) known.push_back(model.name);
    }
    throw_user_error("--gpu {}: the plan knows {}; name one of them, or an instance with --instance.", name,
                     fmt::join(known, ", "));
  }
  constexpr double kPcieGigabytes = 64;
  return {.name = name,
          .gpu = name,
          .nodes = nodes,
          .gpus = per_host,
          .gpu_gigabytes = found->gigabytes,
          .gpu_bytes = static_cast<int64_t>(found->gibibytes * (1 << 30)),
          .efa = efa,
          .links = links_of(found->nvlink, kPcieGigabytes, gigabits, efa),
          .price = std::nullopt};
}

}  // namespace

std::string PlanMachine::gpu_name() const { return fmt::format("{} {}GB", gpu, gpu_gigabytes); }

PlanMachine machine_of_instance(const std::string& type, int nodes, const std::string& network) {
  const std::optional<doctor::Instance> instance = doctor::find_instance(type);
  if (!instance) {
    std::vector<std::string> known;
    for (const doctor::Instance& one : doctor::all_instances()) known.emplace_back(one.type);
    if (const auto nearest = nearest_name(type, known)) {
      throw_user_error("--instance {}: there is no such type in mpzero's table; did you mean {}?", type, *nearest);
    }
    throw_user_error("--instance {}: there is no such type in mpzero's table; docs/ec2.md lists those that it has.",
                     type);
  }
  const bool efa = network != "socket";
  return {.name = type,
          .gpu = instance->gpu,
          .nodes = nodes,
          .gpus = instance->gpus,
          .gpu_gigabytes = instance->gpu_gigabytes,
          .gpu_bytes = memory_of(instance->gpu, instance->gpu_gigabytes),
          .host_bytes = int64_t{instance->host_gibibytes} << 30,
          .host_bytes_per_second = instance->host_gigabytes * 1e9,
          .pcie_bytes_per_second = instance->pcie_gigabytes * 1e9,
          .efa = efa,
          .links = links_of(instance->nvlink_gigabytes, instance->pcie_gigabytes,
                            efa ? instance->gigabits : std::min(instance->gigabits, kTcpGigabits), efa),
          .price = std::nullopt};
}

PlanMachine machine_of_run(const std::string& gpu, int64_t gpu_bytes, int hosts, int per_host, const std::string& type,
                           const std::string& network) {
  PlanMachine machine;
  if (doctor::find_instance(type)) {
    machine = machine_of_instance(type, hosts, network);
  } else {
    const auto* const found = std::find_if(
        kGpus.begin(), kGpus.end(), [&](const GpuModel& model) { return gpu.find(model.name) != std::string::npos; });
    machine = machine_of_gpu(found == kGpus.end() ? gpu : std::string(found->name), per_host, hosts, network == "efa",
                             kTcpGigabits);
  }
  machine.gpus = per_host;
  machine.gpu_bytes = gpu_bytes;
  return machine;
}

std::optional<double> price_in_file(const std::string& file, const std::string& name) {
  const std::optional<std::string> text = read_json_text(file, kConfigurationLimits);
  if (!text) throw_user_error("--prices {}: it cannot be read; check the path.", file);
  const nlohmann::json prices = parse_user_json(*text, file, kConfigurationLimits);
  if (!prices.is_object()) {
    throw_user_error("--prices {}: it must be an object of instance types and prices, as {{\"p5.48xlarge\": 55.04}}.",
                     file);
  }
  const auto found = prices.find(name);
  if (found == prices.end()) return std::nullopt;
  if (!found->is_number() || found->get<double>() < 0) {
    throw_user_error("--prices {}: the price of {} is not a number; write what a host costs in an hour.", file, name);
  }
  return found->get<double>();
}

PlanMachine find_machine(const PlanOptions& options, const std::string& network, int per_host) {
  const int nodes = static_cast<int>(options.nodes);
  PlanMachine machine = options.instance.empty() ? machine_of_gpu(options.gpu, per_host, nodes, network == "efa",
                                                                  options.host_gigabits.value_or(kTcpGigabits))
                                                 : machine_of_instance(options.instance, nodes, network);
  machine.price = options.price;
  if (!options.prices.empty()) machine.price = price_in_file(options.prices, machine.name);
  return machine;
}

}  // namespace mpzero::plan
