#include "app/doctor/host.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "app/machine/host_limits.hpp"
#include "base/text/byte_size.hpp"

namespace mpzero::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The soft limit `name` of this process, from /proc/self/limits: "Max locked memory   65536   65536   bytes".
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

// The number after `key` in /proc/meminfo, in bytes.
std::optional<int64_t> memory_info(const fs::path& root, const std::string& key) {
  std::ifstream file(root / "proc/meminfo");
  std::string word;
  while (file >> word) {
    int64_t kibibytes = 0;
    if (word == key && file >> kibibytes) return kibibytes * 1024;
  }
  return std::nullopt;
}

Finding check_locked_memory(const System& system, bool rdma) {
  constexpr const char* kCheck = "memlock";
  const std::optional<int64_t> allowed = limit(system.root, "Max locked memory");
  if (!allowed) return warning(kCheck, "the limit cannot be read", "/proc/self/limits should exist");
  if (*allowed == kUnlimited) return ok(kCheck, "unlimited");
  constexpr const char* kRemedy =
      "make it unlimited: \"* soft memlock unlimited\" and \"* hard memlock unlimited\" in /etc/security/limits.conf, "
      "LimitMEMLOCK=infinity in slurmd's unit, docker run --ulimit memlock=-1";
  const std::string seen = fmt::format("{} may be locked", bytes_text(*allowed));
  if (rdma) return failure(kCheck, seen + ", and EFA and InfiniBand lock what they send and receive", kRemedy);
  if (*allowed < kMebi)
    return warning(kCheck, seen + ": too little for any network card with remote memory access", kRemedy);
  return ok(kCheck, seen + ", which is enough without EFA");
}

Finding check_open_files(const System& system, const Job& job) {
  constexpr int64_t kBase = 256, kPerRank = 8;
  const std::optional<int64_t> allowed = limit(system.root, "Max open files");
  if (!allowed) return warning("open_files", "the limit cannot be read", "/proc/self/limits should exist");
  const int64_t needed = kBase + kPerRank * job.world_size;
  const std::string seen = *allowed == kUnlimited ? "unlimited" : fmt::format("{} per process", *allowed);
  if (*allowed >= needed) return ok("open_files", seen);
  return warning(
      "open_files", fmt::format("{}, but {} ranks may need {}", seen, job.world_size, needed),
      "ulimit -n 65536 (/etc/security/limits.conf, LimitNOFILE= for slurmd, --ulimit nofile for containers)");
}

Finding check_shared_memory(const System& system, const Job& job, bool gpus) {
  constexpr const char* kCheck = "shared_memory";
  // NCCL's and Open MPI's segments between ranks of one machine.
  const int64_t needed = job.local_ranks * (gpus ? int64_t{32} : int64_t{16}) * kMebi;
  struct statvfs disk {};
  const fs::path folder = system.root / "dev/shm";
  if (statvfs(folder.c_str(), &disk) != 0) {
    return failure(kCheck, fmt::format("{} cannot be used: {}", folder.string(), std::strerror(errno)),
                   "mount -t tmpfs tmpfs /dev/shm");
  }
  const auto block = static_cast<int64_t>(disk.f_frsize);
  const int64_t size = block * static_cast<int64_t>(disk.f_blocks);
  const int64_t free = block * static_cast<int64_t>(disk.f_bavail);
  const std::string seen = fmt::format("{} of {} free in {}", bytes_text(free), bytes_text(size), folder.string());
  constexpr const char* kRemedy =
      "mount -o remount,size=50% /dev/shm; docker run --shm-size=8g or --ipc=host; a medium Memory volume in "
      "Kubernetes";
  if (free < needed) {
    return failure(
        kCheck,
        fmt::format("{}, but {} rank{} here need{} up to {} (less ends in \"Bus error\")", seen, job.local_ranks,
                    job.local_ranks == 1 ? "" : "s", job.local_ranks == 1 ? "s" : "", bytes_text(needed)),
        kRemedy);
  }
  if (gpus && size < kGibi) return warning(kCheck, seen + ", the default of containers", kRemedy);
  return ok(kCheck, seen);
}

Finding check_memory(const System& system) {
  constexpr const char* kCheck = "host_memory";
  constexpr double kLittle = 0.2;
  const int64_t available = available_host_bytes(system.root);
  const std::optional<int64_t> total = memory_info(system.root, "MemTotal:");
  if (!total || available == kUnlimited) return warning(kCheck, "cannot be read", "/proc/meminfo should exist");
  const std::string seen = fmt::format("{} free of {}", bytes_text(available), bytes_text(*total));
  if (available < kGibi) return failure(kCheck, seen, "end other processes on the node, or raise the job's --mem");
  if (static_cast<double>(available) < kLittle * static_cast<double>(*total)) {
    return warning(kCheck, seen + ": other processes or the job's control group take the rest",
                   "sbatch --exclusive --mem=0, and end other processes; the optimizer in host memory needs 18 bytes "
                   "per parameter");
  }
  return ok(kCheck, seen);
}

Finding check_governor(const System& system) {
  const fs::path frequency = system.root / "sys/devices/system/cpu/cpu0/cpufreq";
  const auto governor = read_line(frequency / "scaling_governor");
  if (!governor) return ok("cpu_frequency", "set by the platform");
  const std::string driver = read_line(frequency / "scaling_driver").value_or("unknown driver");
  // Intel's and AMD's own drivers scale up under "powersave" too.
  const bool slow = *governor == "powersave" && driver.find("pstate") == std::string::npos;
  if (!slow) return ok("cpu_frequency", fmt::format("governor {} ({})", *governor, driver));
  return warning("cpu_frequency", fmt::format("governor {} ({}): always the lowest frequency", *governor, driver),
                 "cpupower frequency-set -g performance");
}

// The names that host `own` of `count` looks up.
std::vector<size_t> names_of(size_t own, size_t count) {
  std::vector<size_t> names;
  for (size_t i = 0; i < std::min(count, kMostLookups); ++i) names.push_back((own + i) % count);
  return names;
}

// The results so far, which outlive a thread that waits for a name server.
struct Lookups {
  std::mutex mutex;
  std::condition_variable changed;
  std::string letters;
  bool done = false;
};

}  // namespace

std::vector<Finding> check_host(const System& system, const Job& job, bool gpus, bool rdma) {
  return {check_locked_memory(system, rdma), check_open_files(system, job), check_shared_memory(system, job, gpus),
          check_memory(system), check_governor(system)};
}

NameLookup look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  const auto start = std::chrono::steady_clock::now();
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &addresses);
  // Where there is no name server, the same error comes at once.
  const bool waited = std::chrono::steady_clock::now() - start > std::chrono::seconds(2);
  if (error == EAI_AGAIN && waited) return NameLookup::kNoAnswer;
  if (error != 0) return NameLookup::kUnknown;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(addresses, freeaddrinfo);
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    if (address->ai_family == AF_INET6) {
      const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address->ai_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LOOPBACK(&v6)) return NameLookup::kFound;
    }
    if (address->ai_family != AF_INET) continue;
    const uint32_t v4 = ntohl(reinterpret_cast<const sockaddr_in*>(address->ai_addr)->sin_addr.s_addr);
    if (v4 >> 24 != 127) return NameLookup::kFound;
  }
  return NameLookup::kLoopback;
}

std::string look_up_names(size_t own, const std::vector<std::string>& hosts, Resolver resolver,
                          std::chrono::milliseconds patience) {
  const auto lookups = std::make_shared<Lookups>();
  const std::vector<size_t> names = names_of(own, hosts.size());
  lookups->letters.assign(hosts.size(), static_cast<char>(NameLookup::kNotAsked));
  for (const size_t name : names) lookups->letters[name] = static_cast<char>(NameLookup::kNoAnswer);
  // It shares nothing else with this function's frame, since a name server may block it for longer.
  std::thread([lookups, names, hosts, resolver = std::move(resolver)] {
    for (const size_t name : names) {
      NameLookup found = resolver(hosts[name]);
      if (found == NameLookup::kNoAnswer) found = resolver(hosts[name]);
      if (found == NameLookup::kNoAnswer) break;
      const std::lock_guard lock(lookups->mutex);
      lookups->letters[name] = static_cast<char>(found);
    }
    const std::lock_guard lock(lookups->mutex);
    lookups->done = true;
    lookups->changed.notify_one();
  }).detach();
  std::unique_lock lock(lookups->mutex);
  lookups->changed.wait_for(lock, patience, [&] { return lookups->done; });
  return lookups->letters;
}

Finding judge_names(size_t own, const std::vector<std::string>& hosts, const std::vector<std::string>& lookups) {
  constexpr const char* kCheck = "host_names";
  constexpr const char* kRemedy =
      "put the names of all nodes into DNS or into each node's /etc/hosts; Slurm and MPI start ranks by them";
  const auto seen_by = [&](size_t host, size_t name) { return static_cast<NameLookup>(lookups[host][name]); };
  if (const size_t silent = lookups[own].find(static_cast<char>(NameLookup::kNoAnswer)); silent != std::string::npos) {
    return failure(kCheck, fmt::format("the name server does not answer when it is asked for {}", hosts[silent]),
                   "the one in /etc/resolv.conf must be reachable (in a VPC: enableDnsSupport)");
  }
  if (hosts.size() == 1) {
    if (seen_by(0, 0) != NameLookup::kUnknown) return ok(kCheck, hosts[0] + " resolves");
    return warning(kCheck, hosts[0] + " has no address here", kRemedy);
  }
  std::string unknown, loopback;
  bool known_to_none = true;
  for (size_t other = 0; other < hosts.size(); ++other) {
    const NameLookup seen = seen_by(other, own);
    if (seen != NameLookup::kUnknown && seen != NameLookup::kNotAsked) known_to_none = false;
  }
  for (size_t name = 0; name < hosts.size(); ++name) {
    // A host may know itself by a loopback address; others must not.
    if (name != own && seen_by(own, name) == NameLookup::kLoopback) {
      loopback += (loopback.empty() ? "" : ", ") + hosts[name];
    }
    if (seen_by(own, name) != NameLookup::kUnknown) continue;
    bool known_elsewhere = false;
    for (size_t other = 0; other < hosts.size(); ++other) {
      known_elsewhere = known_elsewhere || seen_by(other, name) == NameLookup::kFound;
    }
    if (known_elsewhere) unknown += (unknown.empty() ? "" : ", ") + hosts[name];
  }
  if (known_to_none) return failure(kCheck, fmt::format("no host knows the address of {}", hosts[own]), kRemedy);
  if (!unknown.empty()) return failure(kCheck, fmt::format("{} has no address here", unknown), kRemedy);
  if (!loopback.empty()) return failure(kCheck, fmt::format("{} is a loopback address here", loopback), kRemedy);
  const auto asked = hosts.size() - static_cast<size_t>(std::count(lookups[own].begin(), lookups[own].end(),
                                                                   static_cast<char>(NameLookup::kNotAsked)));
  return ok(kCheck, asked == hosts.size()
                        ? fmt::format("all {} resolve", asked)
                        : fmt::format("{} of {} were looked up here, and resolve", asked, hosts.size()));
}

}  // namespace mpzero::doctor
