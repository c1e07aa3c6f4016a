#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "app/doctor/host.hpp"
#include "app/machine/host_limits.hpp"
#include "base/text/byte_size.hpp"
#include "base/text/number_ranges.hpp"
#include "base/words.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

// The first processor of /proc/cpuinfo.
struct Processor {
  std::string vendor, name;
  int family = 0, model = 0;
  std::set<std::string> flags;

  bool has(const char* flag) const { return flags.count(flag) > 0; }
  bool has_avx512() const { return has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq"); }
  bool has_amx() const { return has("amx_tile") && has("amx_bf16"); }
  // Intel's server processors by model number: Sapphire Rapids, Emerald Rapids, Granite Rapids and Granite Rapids-D.
  bool should_have_amx() const {
    constexpr int kModels[] = {143, 207, 173, 174};
    return vendor == "GenuineIntel" && family == 6 &&
           std::find(std::begin(kModels), std::end(kModels), model) != std::end(kModels);
  }
};

Processor read_processor(const fs::path& root) {
  const fs::path file = root / "proc/cpuinfo";
  const auto number = [&](const char* key) {
    int value = 0;
    std::istringstream(value_of(file, key)) >> value;
    return value;
  };
  std::istringstream flags(value_of(file, "flags"));
  return {.vendor = value_of(file, "vendor_id"),
          .name = value_of(file, "model name"),
          .family = number("cpu family"),
          .model = number("model"),
          .flags = {std::istream_iterator<std::string>(flags), {}}};
}

std::string describe_instructions(const Processor& processor) {
  std::string text = processor.has_amx() ? "AMX with bf16, " : "";
  if (!processor.has_avx512()) {
    text += "AVX2, no AVX-512";
  } else {
    text += processor.has("avx512_bf16") ? "AVX-512 with bf16" : "AVX-512, without bf16 instructions";
    if (!processor.has_amx()) text += ", no AMX";
  }
  return processor.name.empty() ? text : fmt::format("{} ({})", text, processor.name);
}

// Returns true if the kernel is older than Linux 5.16, the first release that supports AMX.
bool is_before_amx(const std::string& release) {
  int major = 0, minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return std::pair(major, minor) < std::pair(5, 16);
}

Finding check_instructions(const System& system) {
  constexpr const char* kCheck = "cpu_instructions";
  const Processor processor = read_processor(system.root);
  if (processor.flags.empty()) return warning(kCheck, "the CPU flags cannot be read", "check /proc/cpuinfo");
  if (!processor.has("avx2") || !processor.has("fma")) {
    return warning(kCheck, fmt::format("no AVX2 with FMA{}{}", processor.name.empty() ? "" : ": ", processor.name),
                   "use a different machine; virtual machines expose the host's instructions with qemu -cpu host");
  }
  const std::string seen = describe_instructions(processor);
  if (!processor.has_amx() && processor.should_have_amx()) {
    const std::string release = read_line(system.root / "proc/sys/kernel/osrelease").value_or("");
    if (is_before_amx(release)) {
      return warning(kCheck, fmt::format("{}: the processor has AMX, but Linux {} does not support it", seen, release),
                     "use Linux 5.16 or later");
    }
    return warning(kCheck, fmt::format("{}: the processor's AMX is hidden", seen),
                   processor.has("hypervisor") ? "expose AMX in the hypervisor (qemu -cpu host)"
                                               : "remove clearcpuid= from the kernel's command line");
  }
  if (processor.has_amx() && !system.may_use_amx()) {
    return warning(kCheck, fmt::format("{}: the system denies AMX to processes", seen),
                   "allow arch_prctl in the container's seccomp profile; gVisor does not support AMX");
  }
  return ok(kCheck, seen);
}

// A NUMA domain.
struct Domain {
  int number = 0;
  std::vector<int> threads;  // hardware threads that this process may use
  int64_t bytes = 0;         // memory
};

// Returns the domains with usable hardware threads, ordered by number.
std::vector<Domain> read_domains(const fs::path& root) {
  const std::vector<int> allowed = numbers_in(value_of(root / "proc/self/status", "Cpus_allowed_list"));
  std::vector<Domain> domains;
  for (const int number : numbers_in(read_line(root / "sys/devices/system/node/online").value_or(""))) {
    const fs::path folder = root / fmt::format("sys/devices/system/node/node{}", number);
    Domain domain{.number = number, .threads = {}, .bytes = 0};
    for (const int thread : numbers_in(read_line(folder / "cpulist").value_or(""))) {
      if (std::binary_search(allowed.begin(), allowed.end(), thread)) domain.threads.push_back(thread);
    }
    int64_t kibibytes = 0;
    std::istringstream(value_of(folder / "meminfo", fmt::format("Node {} MemTotal", number))) >> kibibytes;
    domain.bytes = kibibytes * 1024;
    if (!domain.threads.empty()) domains.push_back(std::move(domain));
  }
  return domains;
}

Finding check_domains(const System& system, const Job& job) {
  constexpr const char* kCheck = "numa_domains";
  const std::vector<Domain> domains = read_domains(system.root);
  if (domains.empty()) return ok(kCheck, "the kernel reports no NUMA domains");
  std::string seen = counted(static_cast<int64_t>(domains.size()), "domain");
  for (size_t i = 0; i < domains.size(); ++i) {
    seen += fmt::format("{}{} with CPUs {} and {}", i == 0 ? ": " : ", ", domains[i].number,
                        number_ranges(domains[i].threads), bytes_text(domains[i].bytes));
  }
  if (const int allowed = allowed_cores(system.root); allowed > 0) {
    seen += fmt::format("; the cgroup allows {}", counted(allowed, "CPU"));
  }
  const std::vector<int> memory = numbers_in(value_of(system.root / "proc/self/status", "Mems_allowed_list"));
  for (const Domain& domain : domains) {
    if (memory.empty() || std::binary_search(memory.begin(), memory.end(), domain.number)) continue;
    return warning(kCheck, fmt::format("{}; cpuset.mems excludes domain {}", seen, domain.number),
                   "allow memory in the NUMA domains of the allowed CPUs (cpuset.mems, docker run --cpuset-mems)");
  }
  const auto count = static_cast<int>(domains.size());
  if (job.world_size > 1 && job.local_ranks % count != 0) {
    return warning(
        kCheck,
        fmt::format("{}; {} on this host {} memory from several domains", seen, counted(job.local_ranks, "rank"),
                    job.local_ranks == 1 ? "uses" : "use"),
        fmt::format("start a multiple of {} ranks on each host (set by NPROC; the scripts do this by default)", count));
  }
  return ok(kCheck, seen);
}

Finding check_huge_pages(const System& system) {
  constexpr const char* kCheck = "huge_pages";
  const std::string modes = read_line(system.root / "sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  if (modes.find("[madvise]") != std::string::npos) return ok(kCheck, "transparent, on request (madvise)");
  if (modes.find("[always]") != std::string::npos) return ok(kCheck, "transparent, always");
  return warning(kCheck,
                 modes.empty() ? "the kernel has no transparent huge pages" : "transparent huge pages are disabled");
}

}  // namespace

std::vector<Finding> check_cpus(const System& system, const Job& job) {
  return {check_instructions(system), check_domains(system, job), check_huge_pages(system)};
}

}  // namespace mpzero::doctor
