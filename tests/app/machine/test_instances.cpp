#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "app/machine/instances.hpp"
#include "tests/catch.hpp"

namespace mpzero::doctor {
namespace {

std::string name_in(const std::string& cpuinfo) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("mpzero_processor_" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "proc");
  std::ofstream(root / "proc/cpuinfo") << cpuinfo << std::flush;
  std::string name = processor_name(root);
  std::filesystem::remove_all(root);
  return name;
}

}  // namespace

TEST_CASE("a processor has its name, or without a number its family and model") {
  CHECK(name_in("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
                "model name\t: Intel(R) Xeon(R) Platinum 8488C\n\nmodel name\t: another\n") ==
        "Intel(R) Xeon(R) Platinum 8488C");
  CHECK(name_in("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n") == "AMD EPYC, family 26, model 2");
  CHECK(name_in("model name\t: AMD EPYC\n") == "AMD EPYC");
  CHECK(name_in("processor\t: 0\nflags\t\t:\n") == "CPU");
  CHECK(processor_name("/nonexistent") == "CPU");
}

TEST_CASE("the specifications of the instance types without GPUs are consistent") {
  int count = 0;
  for (const Instance& instance : all_instances()) {
    if (instance.gpus > 0) continue;
    ++count;
    INFO(instance.type);
    CHECK(find_instance(instance.type)->cores == instance.cores);
    CHECK(instance.efa_devices == 0);
    CHECK_FALSE(std::string(instance.processor).empty());
    REQUIRE(instance.sockets > 0);
    CHECK(instance.cores % instance.sockets == 0);
    CHECK(instance.host_gigabytes > 100);
    CHECK(instance.gigabits >= 50);
  }
  CHECK(count > 0);
}

}  // namespace mpzero::doctor
