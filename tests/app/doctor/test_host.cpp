#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "app/doctor/doctor.hpp"
#include "app/doctor/host.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

void healthy(const FakeRoot& root) {
  root.write("proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max open files            65536                1048576              files     \n"
             "Max locked memory         unlimited            unlimited            bytes     \n");
  root.write("proc/meminfo", "MemTotal: 1000000000 kB\nMemAvailable: 900000000 kB\n");
}

std::vector<Finding> look(const FakeRoot& root, const Job& job, bool gpus, bool rdma) {
  return check_host(root.system(), job, gpus, rdma);
}

const Job kJob = {.local_ranks = 8, .world_size = 16, .hosts = 2};

}  // namespace

TEST_CASE("a healthy host passes") {
  const FakeRoot root;
  healthy(root);
  for (const Finding& finding : look(root, kJob, true, true)) {
    INFO(finding.check << ": " << finding.message);
    CHECK(finding.status == Status::kOk);
  }
}

TEST_CASE("a low locked memory limit fails with EFA and causes a warning without EFA") {
  const FakeRoot root;
  healthy(root);
  root.write("proc/self/limits", "Max locked memory         65536                65536                bytes     \n");
  const Finding with = find(look(root, kJob, true, true), "memlock");
  CHECK(with.status == Status::kFailure);
  CHECK(with.message == "limit 64 KiB, but EFA and InfiniBand pin (mlock) their registered buffers");
  CHECK(find(look(root, kJob, false, false), "memlock").status == Status::kWarning);
  root.write("proc/self/limits", "Max locked memory         8388608              8388608              bytes     \n");
  CHECK(find(look(root, kJob, true, false), "memlock").status == Status::kOk);
  CHECK(find(look(root, kJob, true, true), "memlock").status == Status::kFailure);
}

TEST_CASE("a low limit on open files matters only with many ranks") {
  const FakeRoot root;
  healthy(root);
  root.write("proc/self/limits", "Max open files            1024                 1048576              files     \n");
  CHECK(find(look(root, kJob, true, false), "open_files").status == Status::kOk);
  const Job large = {.local_ranks = 8, .world_size = 512, .hosts = 64};
  CHECK(find(look(root, large, true, false), "open_files").status == Status::kWarning);
}

TEST_CASE("missing shared memory is a failure") {
  const FakeRoot root;
  healthy(root);
  CHECK(find(look(root, kJob, true, true), "shared_memory").status == Status::kOk);
  std::filesystem::remove(root.path() / "dev/shm");
  CHECK(find(look(root, kJob, true, true), "shared_memory").status == Status::kFailure);
}

TEST_CASE("available host memory is limited by the machine and the job's cgroup") {
  const FakeRoot root;
  healthy(root);
  root.write("proc/meminfo", "MemTotal: 1000000000 kB\nMemAvailable: 100000000 kB\n");
  CHECK(find(look(root, kJob, true, true), "host_memory").status == Status::kWarning);
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.max", "600000000\n");
  root.write("sys/fs/cgroup/job/memory.current", "100000000\n");
  CHECK(find(look(root, kJob, true, true), "host_memory").status == Status::kFailure);
}

TEST_CASE("the checkpoint folder is tested by writing, and no file remains") {
  const FakeRoot root;
  const std::filesystem::path folder = root.path() / "checkpoints/of/a/run";
  const std::vector<Finding> quick = check_storage(folder, 0);
  CHECK(find(quick, "checkpoint_write").message == "writable");
  const std::vector<Finding> timed = check_storage(folder, 8 << 20);
  CHECK_THAT(find(timed, "checkpoint_write").message, Catch::Contains("GB/s (8 MiB in "));
  CHECK_FALSE(std::filesystem::exists(root.path() / "checkpoints"));
  CHECK(check_storage("/proc/1", 0).back().status == Status::kFailure);
}

TEST_CASE("a clock that differs from most others is attributed to its host, including the first host") {
  const std::vector<std::string> hosts = {"a", "b", "c"};
  const auto status = [&](size_t own, const std::vector<double>& offsets) {
    return check_clock(own, hosts, offsets).status;
  };
  CHECK(status(1, {0, 0.01, 0}) == Status::kOk);
  CHECK(status(1, {0, -2, 0}) == Status::kWarning);
  CHECK(check_clock(2, hosts, {0, 0.1, 90}).message == "+89.900 s relative to the median of the hosts");
  CHECK(status(2, {0, 0.1, 90}) == Status::kFailure);
  CHECK(status(0, {0, 31, 31}) == Status::kFailure);
  CHECK(status(1, {0, 31, 31}) == Status::kOk);
  CHECK(status(2, {0, 31, 31}) == Status::kOk);
}

TEST_CASE("if no majority of clocks agrees, no host is at fault") {
  for (const size_t own : {0, 1}) {
    const Finding finding = check_clock(own, {"a", "b"}, {0, -31});
    CHECK(finding.status == Status::kWarning);
    CHECK(finding.message ==
          "no majority of hosts agrees on the time, so the correct time is unknown: a +0.000 s, b -31.000 s");
  }
  CHECK(check_clock(0, {"a", "b", "c", "d"}, {0, 0, 40, 40}).status == Status::kWarning);
  const std::vector<std::string> many(10, "a");
  CHECK_THAT(check_clock(0, many, {0, 100, 200, 300, 400, 500, 600, 700, 800, 900}).message,
             Catch::EndsWith(", a +700.000 s and 2 more"));
}

TEST_CASE("in 1,000 random clusters with a minority of wrong clocks, only those hosts fail") {
  std::mt19937 random(7);
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  for (int i = 0; i < 1000; ++i) {
    const size_t count = 3 + random() % 30;
    const std::vector<std::string> hosts(count, "a");
    const size_t wrong = random() % ((count + 1) / 2);
    std::vector<double> clocks(count);
    for (double& clock : clocks) clock = between(-0.2, 0.2);
    for (size_t host = 0; host < wrong; ++host) clocks[host] = between(31, 1e6) * (random() % 2 == 0 ? 1 : -1);
    std::shuffle(clocks.begin(), clocks.end(), random);
    std::vector<double> offsets;
    for (const double clock : clocks) offsets.push_back(clock - clocks.front());
    for (size_t host = 0; host < count; ++host) {
      INFO("cluster " << i << ", host " << host);
      const bool right = std::abs(clocks[host]) < 1;
      CHECK(check_clock(host, hosts, offsets).status == (right ? Status::kOk : Status::kFailure));
    }
  }
}

TEST_CASE("detects Slurm tasks that are not in one MPI job") {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto environment = [](const Variables& variables) -> parallel::Environment {
    return [variables](const std::string& name) -> std::optional<std::string> {
      for (const auto& [known, value] : variables) {
        if (known == name) return value;
      }
      return std::nullopt;
    };
  };
  CHECK(check_launch(environment({{"SLURM_STEP_NUM_TASKS", "16"}}), 1).status == Status::kFailure);
  CHECK(check_launch(environment({{"SLURM_STEP_NUM_TASKS", "16"}}), 16).status == Status::kOk);
  CHECK(check_launch(environment({{"SLURM_STEP_NUM_TASKS", "1"}}), 1).status == Status::kOk);
  CHECK(check_launch(environment({{"SLURM_STEP_NUM_TASKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), 1).status ==
        Status::kOk);
  CHECK(check_launch(environment({}), 1).status == Status::kOk);
}

}  // namespace mpzero::doctor
