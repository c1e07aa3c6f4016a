#include "app/doctor/host.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

const char* const kFlags =
    "fpu avx fma avx2 hypervisor avx512f avx512dq avx512bw avx512vl avx512_bf16 amx_bf16 amx_tile amx_int8";

void write_processor(const FakeRoot& root, const std::string& flags, int model = 143,
                     const std::string& vendor = "GenuineIntel") {
  root.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: " + vendor +
                                 "\ncpu family\t: 6\nmodel\t\t: " + std::to_string(model) +
                                 "\nmodel name\t: Xeon 8488C\nvmx flags\t: vnmi\nflags\t\t: " + flags +
                                 "\n\nprocessor\t: 1\nflags\t\t: none\n");
}

std::string without(const std::string& name) {
  std::string flags = kFlags;
  for (size_t at = flags.find(name); at != std::string::npos; at = flags.find(name)) {
    flags.erase(at, flags.find(' ', at + 1) == std::string::npos ? std::string::npos : flags.find(' ', at + 1) - at);
  }
  return flags;
}

// Two domains, of which the process may use all.
void healthy(const FakeRoot& root) {
  write_processor(root, kFlags);
  root.write("proc/sys/kernel/osrelease", "6.1.0\n");
  root.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1\n");
  root.write("sys/devices/system/node/online", "0-1\n");
  root.write("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
  root.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       4194304 kB\nNode 0 MemFree: 1 kB\n");
  root.write("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
  root.write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       2097152 kB\n");
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
}

std::vector<Finding> look(const FakeRoot& root, const Job& job = {}, bool amx = true) {
  System system = root.system();
  system.may_use_amx = amx ? +[] { return true; } : +[] { return false; };
  return check_cpus(system, job);
}

}  // namespace

TEST_CASE("a processor with AMX and two domains passes") {
  const FakeRoot root;
  healthy(root);
  const std::vector<Finding> findings = look(root, {.local_ranks = 2, .world_size = 2});
  CHECK(find(findings, "cpu_instructions").message == "AMX with bf16, AVX-512 with bf16 (Xeon 8488C)");
  CHECK(find(findings, "numa_domains").message ==
        "2 domains: 0 with CPUs 0-1,4-5 and 4.0 GiB, 1 with CPUs 2-3,6-7 and 2.0 GiB");
  CHECK(find(findings, "huge_pages").message == "transparent, on request (madvise)");
  CHECK(worst(findings) == Status::kOk);
}

TEST_CASE("AMX that a processor has and a process cannot use is found, with its reason") {
  const FakeRoot root;
  healthy(root);
  const auto seen = [&](bool amx = true) { return find(look(root, {}, amx), "cpu_instructions"); };
  CHECK_THAT(seen(false).message, Catch::EndsWith("denies AMX to processes"));
  write_processor(root, without(" amx_"));
  CHECK(seen().message == "AVX-512 with bf16, no AMX (Xeon 8488C): the processor's AMX is hidden");
  CHECK_THAT(seen().remedy, Catch::Contains("hypervisor"));
  write_processor(root, "avx2 fma avx512f avx512dq avx512bw avx512vl");
  CHECK_THAT(seen().remedy, Catch::Contains("clearcpuid"));
  root.write("proc/sys/kernel/osrelease", "5.10.225-213.878.amzn2.x86_64\n");
  CHECK_THAT(seen().message, Catch::EndsWith("but Linux 5.10.225-213.878.amzn2.x86_64 does not support it"));
  // Processors without it: Ice Lake, and AMD's.
  for (const auto& [model, vendor] : {std::pair(106, "GenuineIntel"), std::pair(143, "AuthenticAMD")}) {
    write_processor(root, without(" amx_"), model, vendor);
    CHECK(seen(false).status == Status::kOk);
  }
}

TEST_CASE("a processor without AVX2 is warned of, and one without AVX-512 is not") {
  const FakeRoot root;
  healthy(root);
  const auto seen = [&] { return find(look(root), "cpu_instructions"); };
  write_processor(root, "fma avx2", 6, "AuthenticAMD");
  CHECK(seen().message == "AVX2, no AVX-512 (Xeon 8488C)");
  CHECK(seen().status == Status::kOk);
  write_processor(root, "fma avx2 avx512f avx512dq avx512bw avx512vl", 6, "AuthenticAMD");
  CHECK(seen().message == "AVX-512, without bf16 instructions, no AMX (Xeon 8488C)");
  write_processor(root, "sse2", 6, "GenuineIntel");
  CHECK_THAT(seen().message, Catch::Contains("no AVX2 with FMA"));
  CHECK(seen().status == Status::kWarning);
  root.write("proc/cpuinfo", "processor: 0\n");
  CHECK(seen().message == "the CPU flags cannot be read");
}

TEST_CASE("domains are those whose CPUs the process may use, and need their memory and a rank each") {
  const FakeRoot root;
  healthy(root);
  const auto seen = [&](int ranks, int world) {
    return find(look(root, {.local_ranks = ranks, .world_size = world}), "numa_domains");
  };
  // The doctor alone, before a run.
  CHECK(seen(1, 1).status == Status::kOk);
  CHECK(seen(4, 8).status == Status::kOk);
  CHECK_THAT(seen(3, 6).message, Catch::Contains("use memory from several domains"));
  CHECK_THAT(seen(1, 2).remedy, Catch::StartsWith("start a multiple of 2 ranks"));
  root.write("proc/self/status", "Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n");
  CHECK_THAT(seen(2, 2).message, Catch::EndsWith("cpuset.mems excludes domain 1"));
  root.write("proc/self/status", "Cpus_allowed_list:\t4-5\nMems_allowed_list:\t0\n");
  CHECK(seen(1, 2).message == "1 domain: 0 with CPUs 4-5 and 4.0 GiB");
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  CHECK_THAT(seen(1, 2).message, Catch::EndsWith("; the cgroup allows 1 CPU"));
  std::filesystem::remove_all(root.path() / "sys/devices/system/node");
  CHECK(seen(1, 2).status == Status::kOk);
}

TEST_CASE("transparent huge pages that are switched off are warned of") {
  const FakeRoot root;
  healthy(root);
  const auto seen = [&] { return find(look(root), "huge_pages"); };
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  CHECK(seen().status == Status::kOk);
  root.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  CHECK(seen().message == "transparent huge pages are disabled");
  CHECK(seen().status == Status::kWarning);
  std::filesystem::remove(root.path() / "sys/kernel/mm/transparent_hugepage/enabled");
  CHECK(seen().message == "the kernel has no transparent huge pages");
}

}  // namespace mpzero::doctor
