#include "app/doctor/host.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "app/machine/host_limits.hpp"
#include "base/text/byte_size.hpp"
#include "base/words.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Returns the soft limit `name` of this process. Format of /proc/self/limits: "Max locked memory 65536 65536 bytes".
std::optional<int64_t> limit(const fs::path& root, const std::string& name) {
  std::ifstream file(root / "proc/self/limits");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name, 0) != 0) continue;
    std::istringstream rest(line.substr(name.size()));
    std::string soft;
    rest >> soft;
    if (soft == "unlimited") return kUnlimited;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(soft.data(), soft.data() + soft.size(), number);
    if (error == std::errc() && end != soft.data()) return number;
  }
  return std::nullopt;
}

Finding check_locked_memory(const System& system, bool rdma) {
  constexpr const char* kCheck = "memlock";
  const std::optional<int64_t> allowed = limit(system.root, "Max locked memory");
  if (!allowed) return warning(kCheck, "the limit cannot be read", "check that /proc/self/limits is readable");
  if (*allowed == kUnlimited) return ok(kCheck, "unlimited");
  const std::string seen = fmt::format("limit {}", bytes_text(*allowed));
  if (rdma) return failure(kCheck, seen + ", but EFA and InfiniBand pin (mlock) their registered buffers");
  if (*allowed < kMebi) return warning(kCheck, seen + ", which is too low for RDMA devices");
  return ok(kCheck, seen + ", which is sufficient without EFA");
}

Finding check_open_files(const System& system, const Job& job) {
  constexpr int64_t kBase = 256, kPerRank = 8;
  const std::optional<int64_t> allowed = limit(system.root, "Max open files");
  if (!allowed) return warning("open_files", "the limit cannot be read", "check that /proc/self/limits is readable");
  const int64_t needed = kBase + kPerRank * job.world_size;
  const std::string seen = *allowed == kUnlimited ? "unlimited" : fmt::format("{} per process", *allowed);
  if (*allowed >= needed) return ok("open_files", seen);
  return warning("open_files",
                 fmt::format("{}, but {} may need {} open files", seen, counted(job.world_size, "rank"), needed));
}

Finding check_shared_memory(const System& system, const Job& job, bool gpus) {
  constexpr const char* kCheck = "shared_memory";
  // NCCL and Open MPI use shared-memory segments between the ranks of a host.
  const int64_t needed = job.local_ranks * (gpus ? int64_t{32} : int64_t{16}) * kMebi;
  struct statvfs disk {};
  const fs::path folder = system.root / "dev/shm";
  if (statvfs(folder.c_str(), &disk) != 0) {
    return failure(kCheck, fmt::format("{} cannot be used: {}", folder.string(), std::strerror(errno)));
  }
  const auto block = static_cast<int64_t>(disk.f_frsize);
  const int64_t size = block * static_cast<int64_t>(disk.f_blocks);
  const int64_t free = block * static_cast<int64_t>(disk.f_bavail);
  const std::string seen = fmt::format("{} of {} free in {}", bytes_text(free), bytes_text(size), folder.string());
  if (free < needed) {
    return failure(
        kCheck,
        fmt::format("{}, but {} rank{} on this host need{} up to {} (with less, ranks may crash with \"Bus error\")",
                    seen, job.local_ranks, job.local_ranks == 1 ? "" : "s", job.local_ranks == 1 ? "s" : "",
                    bytes_text(needed)));
  }
  if (gpus && size < kGibi) return warning(kCheck, seen + ", the default size in containers");
  return ok(kCheck, seen);
}

Finding check_memory(const System& system) {
  constexpr const char* kCheck = "host_memory";
  constexpr double kLittle = 0.2;
  const int64_t available = available_host_bytes(system.root);
  const int64_t total = number_after(system.root / "proc/meminfo", "MemTotal:").value_or(0) * 1024;
  if (total == 0 || available == kUnlimited)
    return warning(kCheck, "the memory size cannot be read", "check that /proc/meminfo is readable");
  const std::string seen = fmt::format("{} of {} free", bytes_text(available), bytes_text(total));
  if (available < kGibi) return failure(kCheck, seen);
  if (static_cast<double>(available) < kLittle * static_cast<double>(total)) {
    return warning(kCheck, seen + ": other processes use the rest, or the job's cgroup limits memory");
  }
  return ok(kCheck, seen);
}

}  // namespace

std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma) {
  return {check_locked_memory(system, rdma), check_open_files(system, job), check_shared_memory(system, job, gpus),
          check_memory(system)};
}

}  // namespace mpzero::doctor
