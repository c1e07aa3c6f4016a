#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "parallel/mpi/launch_check.hpp"
#include "parallel/mpi/mpi_start.hpp"
#include "tests/catch.hpp"
#include "tests/setting.hpp"

namespace mpzero::parallel {
namespace {

namespace fs = std::filesystem;

Environment given(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

fs::path empty_folder() {
  const fs::path folder = fs::temp_directory_path() / ("mpi_start_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

// The status of a process that ends by _exit(1) while MPI starts, or afterwards, as MPI ends one.
int status_of_end(bool while_starting, const fs::path& file) {
  const pid_t child = ::fork();
  if (child == 0) {
    {
      const MpiStart start(given({{"MPZERO_START_FILE", file.string()}}), std::chrono::minutes(5), "Open MPI");
      if (while_starting) ::_exit(1);
    }
    ::_exit(1);
  }
  return status_of(child);
}

// The status of a process in which MPI does not start.
int status_of_hang(const fs::path& file) {
  const pid_t child = ::fork();
  if (child == 0) {
    const MpiStart start(given({{"MPZERO_START_FILE", file.string()}}), std::chrono::milliseconds(1), "Open MPI");
    while (true) ::pause();
  }
  return status_of(child);
}

}  // namespace

TEST_CASE("a process in a step with one task leaves the step", "[launch]") {
  const Setting step("SLURM_STEP_NUM_TASKS", "1");
  const Setting id("SLURM_STEP_ID", "0");
  const Setting later("SLURM_OF_A_LATER_VERSION", "1");
  const Setting job("SLURM_JOB_ID", "7");
  const Setting rank("PMIX_RANK", "0");
  const Setting pmi("PMI_FD", "9");
  const Setting users("PMIX_MCA_gds", "hash");
  SECTION("but for what mpzero reads and what the user has set") {
    leave_launcher(process_environment);
    for (const char* name : {"SLURM_STEP_ID", "SLURM_OF_A_LATER_VERSION", "PMIX_RANK", "PMI_FD"}) {
      CHECK_FALSE(process_environment(name));
    }
    CHECK(process_environment("SLURM_JOB_ID") == "7");
    CHECK(process_environment("PMIX_MCA_gds") == "hash");
  }
  SECTION("not as a rank of mpirun's") {
    const Setting mpirun("OMPI_COMM_WORLD_SIZE", "1");
    leave_launcher(process_environment);
    CHECK(process_environment("PMIX_RANK"));
  }
}

TEST_CASE("only the process of a step with one task is alone", "[launch]") {
  CHECK(is_alone_in_step(given({{"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "1"}})));
  CHECK_FALSE(is_alone_in_step(given({{"SLURM_STEP_NUM_TASKS", "2"}})));
  CHECK_FALSE(is_alone_in_step(given({})));
  CHECK_FALSE(is_alone_in_step(given({{"SLURM_STEP_NUM_TASKS", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})));
  // Flux within a step.
  CHECK_FALSE(is_alone_in_step(given({{"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "4"}, {"PMI_RANK", "1"}})));
}

TEST_CASE("an OPAL_PREFIX of a different Open MPI is reported", "[launch]") {
  const fs::path folder = empty_folder();
  const std::string library = (folder / "own/lib/libmpi.so.40").string();
  fs::create_directories(folder / "own/lib");
  fs::create_directories(folder / "view/lib");
  fs::create_directories(folder / "other/lib");
  std::ofstream(library).put('x');
  std::ofstream(folder / "other/lib/libmpi.so.40").put('x');
  fs::create_symlink(library, folder / "view/lib/libmpi.so.40");
  fs::create_directory_symlink(folder / "own", folder / "link");
  const auto problem = [&](const std::string& prefix) {
    return find_prefix_problem(given({{"OPAL_PREFIX", (folder / prefix).string()}}), library);
  };
  for (const char* prefix : {"own", "own/", "link", "view"}) CHECK_FALSE(problem(prefix));
  for (const char* prefix : {"other", "nowhere", "ow"}) {
    INFO(prefix);
    CHECK_THAT(problem(prefix).value_or(""), Catch::Contains("OPAL_PREFIX=") && Catch::Contains(library));
  }
  CHECK_FALSE(find_prefix_problem(given({}), library));
  CHECK_FALSE(find_prefix_problem(given({{"OPAL_PREFIX", "/nowhere"}}), ""));
  fs::remove_all(folder);
}

TEST_CASE("if MPI ends a process during startup, its configuration is reported as the cause", "[launch]") {
  const fs::path folder = empty_folder();
  CHECK(status_of_end(/*while_starting=*/false, folder / "failed") == 1);
  CHECK_FALSE(fs::exists(folder / "failed"));
  CHECK(status_of_end(/*while_starting=*/true, folder / "failed") == 2);
  CHECK(fs::exists(folder / "failed"));
  fs::remove_all(folder);
}

TEST_CASE("only variables set by the user are reported if MPI does not start", "[launch]") {
  const auto reported = [](const std::string& defaults) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      const MpiStart start(given({{"OMPI_MCA_btl", "^tcp"}, {"MPZERO_MPI_DEFAULTS", defaults}}),
                           std::chrono::minutes(5), "Open MPI");
      ::_exit(1);
    }
    ::close(ends[1]);
    std::array<char, 4096> text{};
    std::string all;
    for (ssize_t size = 0; (size = ::read(ends[0], text.data(), text.size())) > 0;) all.append(text.data(), size);
    ::close(ends[0]);
    CHECK(status_of(child) == 2);
    return all;
  };
  CHECK_THAT(reported(""), Catch::Contains("OMPI_MCA_btl=^tcp"));
  CHECK_THAT(reported("OMPI_MCA_pml OMPI_MCA_btl_tcp_if_include"), Catch::Contains("OMPI_MCA_btl=^tcp"));
  CHECK_THAT(reported("OMPI_MCA_pml OMPI_MCA_btl"), !Catch::Contains("OMPI_MCA_btl"));
}

TEST_CASE("interfaces are listed with their addresses", "[launch]") {
  std::array<sockaddr_in, 3> ipv4{};
  std::array<sockaddr_in6, 2> ipv6{};
  const std::array<const char*, 3> addresses{"127.0.0.1", "10.0.0.1", "169.254.0.1"};
  for (size_t i = 0; i < ipv4.size(); ++i) {
    ipv4[i].sin_family = AF_INET;
    ::inet_pton(AF_INET, addresses[i], &ipv4[i].sin_addr);
  }
  for (size_t i = 0; i < ipv6.size(); ++i) {
    ipv6[i].sin6_family = AF_INET6;
    ::inet_pton(AF_INET6, i == 0 ? "fe80::1" : "fd00::2", &ipv6[i].sin6_addr);
  }
  std::array<std::string, 7> names{"lo", "eth0", "veth_def_agent", "eth0", "eth1", "eth2", "eth3"};
  std::array<ifaddrs, 7> list{};
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].ifa_next = i + 1 < list.size() ? &list[i + 1] : nullptr;
    list[i].ifa_name = names[i].data();
    list[i].ifa_flags = IFF_UP;
    if (i < 3) list[i].ifa_addr = reinterpret_cast<sockaddr*>(&ipv4[i]);
    if (i == 3 || i == 4) list[i].ifa_addr = reinterpret_cast<sockaddr*>(&ipv6[i - 3]);
  }
  list[0].ifa_flags |= IFF_LOOPBACK;
  list[6].ifa_addr = reinterpret_cast<sockaddr*>(&ipv4[1]);
  list[6].ifa_flags = 0;
  CHECK(list_interfaces(list.data()) == "eth0 10.0.0.1, veth_def_agent 169.254.0.1, eth1 fd00::2");
  CHECK(list_interfaces(nullptr) == "none with an address");
}

TEST_CASE("if MPI does not start in time, the failure may be attributed to a host", "[launch]") {
  const fs::path folder = empty_folder();
  CHECK(status_of_hang(folder / "failed") == 1);
  CHECK_FALSE(fs::exists(folder / "failed"));
  fs::remove_all(folder);
}

}  // namespace mpzero::parallel
