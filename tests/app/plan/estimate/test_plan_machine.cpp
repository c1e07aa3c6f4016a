#include <filesystem>

#include "app/machine/instances.hpp"
#include "app/plan/estimate/plan_machine.hpp"
#include "tests/app/error_from.hpp"
#include "tests/app/plan/command/plan_of.hpp"
#include "tests/catch.hpp"

using namespace mpzero;
using namespace mpzero::plan;
using Catch::Contains;

TEST_CASE("a machine matches the instance table") {
  const PlanMachine machine = machine_of_instance("p4de.24xlarge", 4, "auto");
  CHECK(machine.world_size() == 32);
  CHECK(machine.device_name() == "A100 80GB");
  CHECK(machine.gpu_bytes < int64_t{80} << 30);
  CHECK(machine.efa);
  CHECK(machine.links.within_bytes_per_second > machine.links.between_bytes_per_second);
}

TEST_CASE("TCP is slower than EFA, and PCIe is slower than NVLink") {
  for (const doctor::Instance& instance : doctor::all_instances()) {
    if (instance.efa_devices == 0) continue;
    const Links efa = machine_of_instance(instance.type, 2, "efa").links;
    const Links tcp = machine_of_instance(instance.type, 2, "socket").links;
    INFO(instance.type);
    CHECK(tcp.between_bytes_per_second < efa.between_bytes_per_second);
    CHECK(tcp.between_hop_seconds > efa.between_hop_seconds);
  }
  CHECK(machine_of_instance("p5.48xlarge", 1, "auto").links.within_bytes_per_second >
        machine_of_instance("g6e.48xlarge", 1, "auto").links.within_bytes_per_second);
}

TEST_CASE("without EFA, the host's processors limit the bandwidth") {
  const auto rate = [](const char* type, const char* network) {
    return machine_of_instance(type, 2, network).links.between_bytes_per_second / 1e9;
  };
  CHECK(rate("p5.48xlarge", "efa") == Approx(0.85 * 400));
  CHECK(rate("g6e.12xlarge", "efa") == Approx(6.25));
  CHECK(rate("g6e.48xlarge", "efa") == Approx(6.25));
  CHECK(rate("g5.8xlarge", "efa") == Approx(0.85 * 25 / 8));
  CHECK(rate("p5.48xlarge", "socket") == Approx(5.0));
  CHECK_THAT(machine_of_instance("g6e.12xlarge", 2, "efa").network_basis, Contains("estimate"));
  CHECK_THAT(machine_of_instance("p5.48xlarge", 2, "efa").network_basis, Contains("published"));
}

TEST_CASE("a measured rate replaces the network's rate") {
  HostOptions options;
  options.gpu = "H200";
  options.nodes = 2;
  const Links before = find_machine(options, "socket", 1).links;
  options.network_rate = 12.5;
  const Links after = find_machine(options, "socket", 1).links;
  CHECK(after.between_bytes_per_second == Approx(12.5e9));
  CHECK(after.between_all_to_all_bytes_per_second / after.between_bytes_per_second ==
        Approx(before.between_all_to_all_bytes_per_second / before.between_bytes_per_second));
  CHECK(after.within_bytes_per_second == before.within_bytes_per_second);
}

TEST_CASE("an unknown name is refused in one sentence") {
  CHECK_THAT(error_from([] { machine_of_instance("p5.48xlrge", 1, "auto"); }), Contains("did you mean p5.48xlarge?"));
  CHECK_THAT(error_from([] { machine_of_instance("t3.micro", 1, "auto"); }), Contains("docs/ec2.md"));
  HostOptions options;
  options.gpu = "h200";
  CHECK(find_machine(options, "auto", 1).gpu == "H200");
  options.gpu = "v100";
  CHECK_THAT(error_from([&] { find_machine(options, "auto", 1); }), Contains("--gpu v100") && Contains("H200"));
}

TEST_CASE("a GPU selected by name has the PCIe rate of its generation") {
  const auto rate = [](const char* gpu) {
    HostOptions options;
    options.gpu = gpu;
    return find_machine(options, "auto", 4).links.within_bytes_per_second;
  };
  CHECK(rate("L40S") == Approx(0.4 * 32e9));
  for (const doctor::Instance& instance : doctor::all_instances()) {
    if (instance.type != std::string("g6e.48xlarge")) continue;
    CHECK(rate("L40S") == Approx(machine_of_instance(instance.type, 1, "auto").links.within_bytes_per_second));
  }
  CHECK(rate("A10G") == rate("L4"));
}

TEST_CASE("a GPU sold with two memory sizes must be named with one") {
  HostOptions options;
  const auto machine = [&](const char* gpu) {
    options.gpu = gpu;
    return find_machine(options, "auto", 1);
  };
  CHECK(machine("A100").gpu_gigabytes == 40);
  CHECK(machine("A100-40GB").gpu_gigabytes == 40);
  CHECK(machine("a100-80gb").device_name() == "A100 80GB");
  CHECK(machine("A100-80GB").gpu == "A100");
  CHECK(machine("A100-80GB").gpu_bytes > int64_t{79} << 30);
  CHECK_THAT(error_from([&] { machine("A100-60GB"); }), Contains("A100-80GB"));
  CHECK(machine_of_run("NVIDIA A100-SXM4-80GB", int64_t{79} << 30, 1, 1, "", "auto").gpu_gigabytes == 80);
  for (const char* other : {"NVIDIA H100 PCIe", "NVIDIA GB200", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"}) {
    CHECK_THAT(error_from([&] { machine_of_run(other, int64_t{79} << 30, 1, 1, "", "auto"); }), Contains("--gpu"));
  }
}

TEST_CASE("a network limited by the host's processors is reported") {
  HostOptions options;
  options.gpu = "H100";
  options.nodes = 2;
  options.host_gigabits = 400;
  CHECK_THAT(find_machine(options, "socket", 8).network_basis, Contains("at most 40 of 400 Gb/s"));
  options.host_gigabits = 50;
  CHECK(find_machine(options, "socket", 8).network_basis == "an estimate");
}

TEST_CASE("prices are read from the user's file") {
  const TextFile file(R"({"p5.48xlarge": 55.04, "p4d.24xlarge": "much"})");
  CHECK(price_in_file(file.path(), "p5.48xlarge") == 55.04);
  CHECK_FALSE(price_in_file(file.path(), "g6e.12xlarge").has_value());
  CHECK(unknown_in_price_file(file.path(), "").empty());
  CHECK_THAT(error_from([&] { price_in_file(file.path(), "p4d.24xlarge"); }), Contains("p4d.24xlarge"));
  file.write(R"({"p5.48xlage": 55.04, "t3.micro": 0.01, "H200": 3})");
  CHECK_THAT(unknown_in_price_file(file.path(), "H200"),
             Contains("p5.48xlage (did you mean p5.48xlarge?)") && Contains("t3.micro") && !Contains("H200"));
  file.write("[1]");
  CHECK_THAT(error_from([&] { price_in_file(file.path(), "p5.48xlarge"); }), Contains("must be a JSON object"));
  std::filesystem::remove(file.path());
  CHECK_THAT(error_from([&] { price_in_file(file.path(), "p5.48xlarge"); }), Contains("cannot be read"));
}

TEST_CASE("the error of the rates between GPUs depends on their source") {
  const auto error_of = [](const std::string& type, int nodes, const std::string& network = "auto") {
    return machine_of_instance(type, nodes, network).network_error;
  };
  CHECK(error_of("p5.48xlarge", 1) == 0);              // NVLink
  CHECK(error_of("g6e.12xlarge", 1) == 0.5);           // PCIe through host memory, an estimate
  CHECK(error_of("p5.48xlarge", 2) == 0.2);            // published measurements
  CHECK(error_of("p5.48xlarge", 2, "socket") == 0.5);  // estimates
  CHECK(error_of("g6e.12xlarge", 2) == 0.5);
  PlanMachine machine = machine_of_instance("g6e.12xlarge", 2, "auto");
  set_network_rate(machine, 3);
  CHECK(machine.network_error == 0);
}
