#include "parallel/mpi/mpi_start.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/output.hpp"
#include "parallel/mpi/launch_check.hpp"

namespace mpzero::parallel {
namespace {

namespace fs = std::filesystem;

struct Guarded {
  pid_t process;
  std::string remedy;
  std::string file;  // MPZERO_START_FILE
};

// State of the current MpiStart. Global because the replaced `_exit` reads it.
Guarded* guarded = nullptr;

// Slurm variables that mpzero reads (app/machine, app/checkpoint, app/health).
constexpr std::array<std::string_view, 10> kKept = {
    "SLURM_JOB_ID",    "SLURM_RESTART_COUNT", "SLURM_ARRAY_JOB_ID",  "SLURM_ARRAY_TASK_ID", "SLURM_GPUS_ON_NODE",
    "SLURM_STEP_GPUS", "SLURM_JOB_GPUS",      "SLURM_GPUS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_STEP_NUM_TASKS"};

bool is_of_launcher(std::string_view name) {
  if (name.starts_with("PMIX_MCA_")) return false;  // set by the user
  if (name.starts_with("PMIX_") || name.starts_with("PMI_")) return true;
  return name.starts_with("SLURM_") && std::find(kKept.begin(), kKept.end(), name) == kKept.end();
}

// Returns the remedy for a failed MPI initialization.
std::string remedy_of(const Environment& environment, const std::string& mpi) {
  std::vector<std::string> set;
  // Excludes variables that the scripts set themselves (scripts/common.sh).
  const std::string defaults = fmt::format(" {} ", environment("MPZERO_MPI_DEFAULTS").value_or(""));
  for (const char* name :
       {"OPAL_PREFIX", "OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_mtl_ofi_provider_include", "UCX_NET_DEVICES", "UCX_TLS"}) {
    const bool of_script = defaults.find(fmt::format(" {} ", name)) != std::string::npos;
    if (const auto value = environment(name); value && !of_script) set.push_back(fmt::format("{}={}", name, *value));
  }
  if (!set.empty()) return fmt::format("correct or unset {}", fmt::join(set, ", "));
  return fmt::format("start the ranks with the mpirun of {}, or with srun and a supported --mpi type", mpi);
}

std::string own_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "unknown";
  std::string names = list_interfaces(list);
  ::freeifaddrs(list);
  return names;
}

// Creates an empty file. Returns false if the file exists.
bool create(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0 || errno != EEXIST;
}

// Returns true if this process is the first rank to report.
bool reports_first() { return guarded->file.empty() || create(guarded->file); }

// Returns the exit status of this process, which ends with `status`.
int status_of_end(int status) {
  if (guarded == nullptr || guarded->process != ::getpid()) return status;
  report_failed_start("see MPI's messages above");
  return kUserErrorExitCode;
}

}  // namespace

void leave_launcher(const Environment& environment) {
  if (!is_alone_in_step(environment)) return;
  std::vector<std::string> names;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    if (is_of_launcher(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

std::optional<std::string> find_prefix_problem(const Environment& environment, const std::string& library) {
  const auto given = environment("OPAL_PREFIX");
  if (!given || given->empty() || library.empty()) return std::nullopt;
  std::error_code ignored;
  const fs::path file = fs::weakly_canonical(library, ignored);
  const fs::path prefix = fs::weakly_canonical(*given, ignored);
  const auto [end, rest] = std::mismatch(prefix.begin(), prefix.end(), file.begin(), file.end());
  if (end == prefix.end()) return std::nullopt;
  // The prefix may be a folder of links, such as a Spack view.
  for (const char* folder : {"lib", "lib64"}) {
    if (fs::equivalent(prefix / folder / fs::path(library).filename(), file, ignored)) return std::nullopt;
  }
  return fmt::format("OPAL_PREFIX={} does not match {}, the Open MPI library of this build; unset OPAL_PREFIX", *given,
                     library);
}

std::string mpi_library_file() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  Dl_info found{};
  if (!std::string_view(version.data()).starts_with("Open MPI") ||
      ::dladdr(::dlsym(RTLD_DEFAULT, "MPI_Init_thread"), &found) == 0 || found.dli_fname == nullptr) {
    return "";
  }
  return found.dli_fname;
}

std::string list_interfaces(const ifaddrs* list) {
  std::vector<std::string> found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const void* bytes = nullptr;
    if (one->ifa_addr->sa_family == AF_INET) {
      bytes = &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&address)) bytes = &address;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (bytes == nullptr || ::inet_ntop(one->ifa_addr->sa_family, bytes, text.data(), text.size()) == nullptr) continue;
    found.push_back(fmt::format("{} {}", one->ifa_name, text.data()));
  }
  return found.empty() ? "none with an address" : fmt::format("{}", fmt::join(found, ", "));
}

MpiStart::MpiStart(const Environment& environment, std::chrono::milliseconds patience, const std::string& mpi)
    : deadline_(patience, [patience, environment, mpi] {
        return fmt::format(
            "MPI did not start within {} s: a rank is missing or unreachable through the network interfaces of {} "
            "({}); check the nodes, or {}",
            std::chrono::duration_cast<std::chrono::seconds>(patience).count(), host_name(), own_interfaces(),
            remedy_of(environment, mpi));
      }) {
  guarded = new Guarded{.process = ::getpid(),
                        .remedy = remedy_of(environment, mpi),
                        .file = environment("MPZERO_START_FILE").value_or("")};
}

MpiStart::~MpiStart() {
  delete guarded;
  guarded = nullptr;
}

void confirm_start(const Environment& environment) {
  const auto file = environment("MPZERO_START_FILE");
  if (file && !file->empty()) create(*file + ".ok");
}

void report_failed_start(const std::string& reason) {
  if (reports_first()) print_err("mpzero: error: MPI did not start ({}); {}\n", reason, guarded->remedy);
}

}  // namespace mpzero::parallel

// Replaces libc's _exit(), which MPI calls to end the process. NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void _exit(int status) {
  ::syscall(SYS_exit_group, mpzero::parallel::status_of_end(status));
  __builtin_unreachable();
}
