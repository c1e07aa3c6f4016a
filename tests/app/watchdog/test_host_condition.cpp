#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/watchdog/host_condition.hpp"
#include "tests/catch.hpp"
#include "tests/io/checkpoint_fixture.hpp"

namespace mpzero {

TEST_CASE("The condition of a host has its free memory, pressure, OOM kills and Xid messages") {
  const io::testing::TemporaryFolder root;
  CHECK(host_condition(at::kCPU, root.path()).dump() == R"({"xid":[],"gpu":[]})");
  for (const char* folder : {"proc/pressure", "dev"}) std::filesystem::create_directories(root.path() / folder);
  std::ofstream(root.path() / "proc/meminfo") << "MemTotal: 9 kB\nMemAvailable: 3 kB\n";
  std::ofstream(root.path() / "proc/pressure/memory") << "some avg10=1.50 avg60=0.00\nfull avg10=7.00\n";
  std::ofstream(root.path() / "proc/vmstat") << "nr_free_pages 4\noom_kill 2\n";
  std::ofstream(root.path() / "dev/kmsg") << "4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus\n";
  const nlohmann::json seen = host_condition(at::kCPU, root.path());
  CHECK((seen["memory_available_bytes"] == 3072 && seen["memory_pressure"] == 1.5 && seen["oom_kills"] == 2));
  CHECK_THAT(seen["xid"][0].get<std::string>(), Catch::StartsWith("NVRM: Xid (PCI:0000:01:00): 79"));
}

}  // namespace mpzero
