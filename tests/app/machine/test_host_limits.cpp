#include <unistd.h>

#include <fstream>
#include <string>

#include "app/machine/host_limits.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;

// A folder with test files in place of /proc and /sys.
class FakeRoot {
 public:
  FakeRoot() : path_(fs::temp_directory_path() / name()) { fs::remove_all(path_); }
  ~FakeRoot() { fs::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  static std::string name() { return "mpzero_host_limits_" + std::to_string(getpid()); }
  fs::path path_;
};

constexpr int64_t kMachine = int64_t{1'000'000} * 1024;

}  // namespace

TEST_CASE("without cgroups, the machine's memory is the limit") {
  const FakeRoot root;
  root.write("proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n");
  CHECK(available_host_bytes(root.path()) == kMachine);
  CHECK(allowed_cores(root.path()) == 0);
}

TEST_CASE("a cgroup v2 and its parents limit memory and cores") {
  const FakeRoot root;
  root.write("proc/meminfo", "MemAvailable: 1000000 kB\n");
  root.write("proc/self/cgroup", "0::/slurm/job_7\n");
  root.write("sys/fs/cgroup/slurm/job_7/memory.max", "max\n");
  root.write("sys/fs/cgroup/slurm/job_7/memory.current", "700\n");
  CHECK(available_host_bytes(root.path()) == kMachine);
  root.write("sys/fs/cgroup/slurm/memory.max", "1000\n");
  root.write("sys/fs/cgroup/slurm/memory.current", "700\n");
  CHECK(available_host_bytes(root.path()) == 300);
  // File caches count as free.
  root.write("sys/fs/cgroup/slurm/memory.stat", "anon 500\nactive_file 150\ninactive_file 50\n");
  CHECK(available_host_bytes(root.path()) == 500);
  root.write("sys/fs/cgroup/slurm/job_7/memory.max", "800\n");
  CHECK(available_host_bytes(root.path()) == 100);
  root.write("sys/fs/cgroup/slurm/job_7/memory.max", "600\n");
  CHECK(available_host_bytes(root.path()) == 0);

  root.write("sys/fs/cgroup/slurm/job_7/cpu.max", "max 100000\n");
  CHECK(allowed_cores(root.path()) == 0);
  root.write("sys/fs/cgroup/slurm/cpu.max", "350000 100000\n");
  CHECK(allowed_cores(root.path()) == 3);
  root.write("sys/fs/cgroup/slurm/job_7/cpu.max", "50000 100000\n");
  CHECK(allowed_cores(root.path()) == 1);
}

TEST_CASE("a container's own cgroup is at the root of its mount") {
  const FakeRoot root;
  root.write("proc/meminfo", "MemAvailable: 1000000 kB\n");
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "5000\n");
  root.write("sys/fs/cgroup/memory.current", "1000\n");
  CHECK(available_host_bytes(root.path()) == 4000);
}

TEST_CASE("cgroups v1 limit memory and cores") {
  const FakeRoot root;
  root.write("proc/meminfo", "MemAvailable: 1000000 kB\n");
  root.write("proc/self/cgroup", "12:cpu,cpuacct:/job\n9:memory:/job\n1:name=systemd:/init\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n");
  root.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8000\n");
  root.write("sys/fs/cgroup/memory/job/memory.stat", "cache 10\ntotal_inactive_file 500\ntotal_active_file 0\n");
  CHECK(available_host_bytes(root.path()) == 1500);
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  CHECK(allowed_cores(root.path()) == 0);
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
  CHECK(allowed_cores(root.path()) == 4);
}

}  // namespace mpzero
