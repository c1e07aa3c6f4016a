#include <filesystem>
#include <fstream>

#include "app/machine/instances.hpp"
#include "app/plan/command/plan_machine.hpp"
#include "tests/app/error_from.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("a machine is what the table of instances says") {
  const PlanMachine machine = machine_of_instance("p4de.24xlarge", 4, "auto");
  CHECK(machine.world_size() == 32);
  CHECK(machine.gpu_name() == "A100 80GB");
  CHECK(machine.gpu_bytes < int64_t{80} << 30);
  CHECK(machine.efa);
  CHECK(machine.links.within_bytes_per_second > machine.links.between_bytes_per_second);
}

TEST_CASE("TCP is slower than EFA, and PCIe than NVLink") {
  for (const doctor::Instance& instance : doctor::all_instances()) {
    const Links efa = machine_of_instance(instance.type, 2, "efa").links;
    const Links tcp = machine_of_instance(instance.type, 2, "socket").links;
    INFO(instance.type);
    CHECK(tcp.between_bytes_per_second < efa.between_bytes_per_second);
    CHECK(tcp.between_hop_seconds > efa.between_hop_seconds);
  }
  CHECK(machine_of_instance("p5.48xlarge", 1, "auto").links.within_bytes_per_second >
        machine_of_instance("g6e.48xlarge", 1, "auto").links.within_bytes_per_second);
}

TEST_CASE("an unknown name is one sentence") {
  CHECK_THAT(error_from([] { machine_of_instance("p5.48xlrge", 1, "auto"); }), Contains("did you mean p5.48xlarge?"));
  CHECK_THAT(error_from([] { machine_of_instance("t3.micro", 1, "auto"); }), Contains("docs/ec2.md"));
  PlanOptions options;
  options.gpu = "V100";
  CHECK_THAT(error_from([&] { find_machine(options, "auto", 1); }), Contains("--gpu V100") && Contains("H200"));
}

TEST_CASE("prices come from the user's file") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "mpzero_prices.json";
  std::ofstream(file) << R"({"p5.48xlarge": 55.04, "p4d.24xlarge": "much"})";
  CHECK(price_in_file(file.string(), "p5.48xlarge") == 55.04);
  CHECK_FALSE(price_in_file(file.string(), "g6e.12xlarge").has_value());
  CHECK_THAT(error_from([&] { price_in_file(file.string(), "p4d.24xlarge"); }), Contains("p4d.24xlarge"));
  std::ofstream(file) << "[1]";
  CHECK_THAT(error_from([&] { price_in_file(file.string(), "p5.48xlarge"); }), Contains("must be an object"));
  std::filesystem::remove(file);
  CHECK_THAT(error_from([&] { price_in_file(file.string(), "p5.48xlarge"); }), Contains("cannot be read"));
}
