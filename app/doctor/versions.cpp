#include "app/doctor/versions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "io/bytes/checksum.hpp"
#include "io/files/atomic_file.hpp"
#include "parallel/comm/library_versions.hpp"
#include "parallel/network/network.hpp"
#include "parallel/network/network_plugin.hpp"
#include "parallel/optimizer/adamw_kernels.hpp"

namespace mpzero::doctor {
namespace {

std::string checksum(const std::string& file) {
  constexpr int64_t kBlock = 4 << 20;
  const io::File opened = io::File::open_for_reading(file);
  io::StreamingChecksum sum;
  std::vector<std::byte> block;
  for (int64_t at = 0, size = opened.size(); at < size; at += static_cast<int64_t>(block.size())) {
    block.resize(static_cast<size_t>(std::min(kBlock, size - at)));
    opened.read(at, block);
    sum.add(block);
  }
  return io::to_hex(sum.value());
}

// Plugins without a version are compared by checksum.
std::string plugin_text(const parallel::PluginSearch& search) {
  if (!search.plugin) return {};
  const std::string version = parallel::plugin_version(search.plugin->file);
  return "aws-ofi-nccl " + (version.empty() ? "with checksum " + checksum(search.plugin->file) : version);
}

std::string cuda_text(int version) {
  return version == 0 ? std::string() : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Returns the value on more than half of the hosts; std::nullopt if there is no majority.
std::optional<std::string> usual(size_t fact, const std::vector<std::vector<Fact>>& facts) {
  std::map<std::string, size_t> counts;
  for (const auto& of_host : facts) ++counts[of_host[fact].value];
  for (const auto& [value, count] : counts) {
    if (2 * count > facts.size()) return value;
  }
  return std::nullopt;
}

// Returns a value that differs from `own`, from any host.
std::string another(const std::string& own, size_t fact, const std::vector<std::vector<Fact>>& facts) {
  for (const auto& of_host : facts) {
    if (of_host[fact].value != own) return of_host[fact].value;
  }
  return own;
}

std::string shown(const std::string& value) { return value.empty() ? "none" : value; }

}  // namespace

std::vector<Fact> collect_facts(const System& system, const GpuSurvey& gpus, const FabricSurvey& fabric,
                                const parallel::PluginSearch& plugin) {
  // Without EFA, a run uses neither libfabric nor the plugin.
  const bool efa = parallel::count_efa(parallel::rdma_devices(system.root)) > 0;
  return {
      // Two different builds can have the same version.
      {.what = "mpzero (checksum of the program)", .value = checksum("/proc/self/exe")},
      {.what = "CUDA runtime", .value = cuda_text(parallel::cuda_runtime_version())},
      {.what = "NCCL", .value = parallel::nccl_version()},
      {.what = "MPI", .value = parallel::mpi_version()},
      {.what = "GPU", .value = gpus.gpus.empty() ? std::string() : gpus.gpus.front().name},
      {.what = "libfabric", .value = fabric.version, .decisive = efa},
      {.what = "NCCL's plugin", .value = plugin_text(plugin), .decisive = efa},
      {.what = "GPU driver", .value = gpus.driver, .decisive = false},
      {.what = "EFA driver",
       .value = read_line(system.root / "sys/module/efa/version").value_or(""),
       .decisive = false},
      {.what = "kernel", .value = read_line(system.root / "proc/sys/kernel/osrelease").value_or(""), .decisive = false},
      {.what = "host AdamW kernel", .value = parallel::name(parallel::fastest_host_kernel()), .decisive = false},
      {.what = "instance type", .value = instance_type(system), .decisive = false},
  };
}

Finding compare_facts(size_t own, const std::vector<std::string>& hosts, const std::vector<std::vector<Fact>>& facts) {
  constexpr const char* kCheck = "versions";
  std::string differences;
  bool decisive = false;
  for (size_t i = 0; i < facts[own].size(); ++i) {
    const Fact& fact = facts[own][i];
    const std::string norm = usual(i, facts).value_or(another(fact.value, i, facts));
    if (fact.value == norm) continue;
    std::string where;
    int many = 0;
    for (size_t host = 0; host < hosts.size(); ++host) {
      if (facts[host][i].value != norm) continue;
      if (many++ == 0) where = hosts[host];
    }
    if (many > 1) where += fmt::format(" and {} more", many - 1);
    differences += fmt::format("{}{} {} here, {} on {}", differences.empty() ? "" : "; ", fact.what, shown(fact.value),
                               shown(norm), where);
    decisive = decisive || fact.decisive;
  }
  if (decisive) return failure(kCheck, differences);
  if (!differences.empty()) return warning(kCheck, differences);
  std::string list;
  for (const Fact& fact : facts[own]) {
    // Omit the first fact, which is a checksum.
    if (fact.value.empty() || &fact == facts[own].data()) continue;
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", fact.what, fact.value);
  }
  return ok(kCheck, hosts.size() > 1 ? fmt::format("identical on all {} hosts: {}", hosts.size(), list) : list);
}

}  // namespace mpzero::doctor
