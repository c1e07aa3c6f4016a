#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>

#include "app/host_memory.hpp"
#include "tests/catch.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys.
class Machine {
 public:
  Machine() {
    std::string pattern = (fs::temp_directory_path() / "mpzero-test-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  ~Machine() { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int64_t left() const { return host_memory_left(root_); }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("host memory that is left is what the kernel and every control group leave") {
  Machine machine;
  CHECK(machine.left() == std::numeric_limits<int64_t>::max());
  machine.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n");
  CHECK(machine.left() == 600 * 1024);
  machine.write("proc/self/cgroup", "0::/job/step\n");
  machine.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  machine.write("sys/fs/cgroup/job/step/memory.current", "5000\n");
  CHECK(machine.left() == 600 * 1024);
  // A group above has the limit; page cache that can go counts as free.
  machine.write("sys/fs/cgroup/job/memory.max", "400000\n");
  machine.write("sys/fs/cgroup/job/memory.current", "300000\n");
  machine.write("sys/fs/cgroup/job/memory.stat", "anon 250000\nfile 50000\ninactive_file 30000\n");
  CHECK(machine.left() == 400000 - 270000);
  machine.write("sys/fs/cgroup/job/step/memory.max", "4000\n");
  CHECK(machine.left() == 0);
  machine.write("proc/self/cgroup", "12:memory:/old\n");
  CHECK(machine.left() == 600 * 1024);
}

TEST_CASE("this machine has some host memory left") {
  CHECK(host_memory_left() > 0);
  CHECK(host_memory_left() < int64_t{1} << 50);
}

}  // namespace mpzero
