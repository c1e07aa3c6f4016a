#include "app/machine/fabric.hpp"
#include "app/machine/instances.hpp"
#include "base/environment.hpp"
#include "parallel/network/network.hpp"
#include "tests/app/doctor/doctor_checks.hpp"
#include "tests/skip.hpp"

namespace mpzero::doctor {
namespace {

const Job kTwoNodes = {.local_ranks = 8, .world_size = 16, .hosts = 2};

parallel::PluginSearch plugin_of(const System& system) {
  return parallel::find_libfabric_plugin(parallel::process_environment, system.plugin_files);
}

std::vector<Finding> look(const System& system, const std::string& providers, bool gpus = true) {
  const Setting setting("MPZERO_FAKE_FABRIC", providers);
  return check_fabric(system, kTwoNodes, gpus, survey_fabric(system.libfabric), plugin_of(system));
}

const std::string kFabric = "2.1.0amzn3.0 (" + stand_in("fake_fabric") + ")";

}  // namespace

TEST_CASE("EFA devices are identified by their driver or their name") {
  const FakeRoot root;
  CHECK(parallel::rdma_devices(root.path()).empty());
  root.make_efa(2);
  root.write("sys/class/infiniband/efa_9/ports/1/state", "4: ACTIVE\n");
  root.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  const auto devices = parallel::rdma_devices(root.path());
  CHECK(devices.size() == 4);
  CHECK(parallel::count_efa(devices) == 3);
  CHECK(devices[1].name == "mlx5_0");
  CHECK_FALSE(devices[1].efa);
}

TEST_CASE("a healthy p5 passes, and a machine without EFA does not need it") {
  const FakeRoot root;
  CHECK(worst(look(root.system(), "tcp")) == Status::kOk);
  root.make_instance("p5.48xlarge");
  root.make_efa(32);
  const std::vector<Finding> findings = look(root.system(), "efa+gpu efa+gpu tcp");
  CHECK(worst(findings) == Status::kOk);
  CHECK(find(findings, "libfabric").message == kFabric + ", provider efa, supports GPU memory");
  CHECK(find(findings, "nccl_plugin").message ==
        "aws-ofi-nccl 1.16.2 (" + stand_in("fake_plugin") + "), network \"Libfabric\"");
}

TEST_CASE("detects fewer EFA devices than the instance type has") {
  const FakeRoot root;
  root.make_instance("p4d.24xlarge");
  const Finding none = find(look(root.system(), "tcp"), "efa_devices");
  CHECK(none.status == Status::kFailure);
  CHECK(none.message == "0 EFA devices, but p4d.24xlarge supports 4");
  root.make_efa(3);
  CHECK(find(look(root.system(), "efa+gpu"), "efa_devices").status == Status::kWarning);
}

TEST_CASE("a missing provider, library, GPU memory or plugin is a failure with EFA") {
  const FakeRoot root;
  root.make_instance("p4d.24xlarge");
  root.make_efa(4);
  const Finding missing = find(look(root.system(), "tcp udp"), "libfabric");
  CHECK(missing.status == Status::kFailure);
  CHECK(missing.message == kFabric + " has no efa provider for the 4 devices (providers: tcp, udp)");
  CHECK(find(look(root.system(), ""), "libfabric").status == Status::kFailure);
  // NCCL's plugin does not use providers layered over EFA.
  CHECK(find(look(root.system(), "efa;ofi_rxd"), "libfabric").status == Status::kFailure);
  CHECK(find(look(root.system(), "efa"), "libfabric").status == Status::kFailure);
  // What the check of the GPUs finds missing is not reported twice.
  CHECK(find(look(root.system(), "efa", /*gpus=*/false), "libfabric").status == Status::kOk);
  {
    const Setting forbidden("FI_EFA_USE_DEVICE_RDMA", "No");
    CHECK(find(look(root.system(), "efa+gpu"), "libfabric").status == Status::kFailure);
  }
  for (const char* word : {"1", "true", "TRUE"}) {
    const Setting dispensed("OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK", word);
    const Finding through_host = find(look(root.system(), "efa"), "libfabric");
    CHECK(through_host.status == Status::kWarning);
    CHECK(through_host.message == "libfabric " + kFabric +
                                      " does not support GPU memory, so data passes through host memory "
                                      "(OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK)");
    const Setting forbidden("FI_EFA_USE_DEVICE_RDMA", "0");
    CHECK(find(look(root.system(), "efa+gpu"), "libfabric").status == Status::kWarning);
  }
  for (const char* word : {"0", "false", ""}) {
    const Setting required("OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK", word);
    CHECK(find(look(root.system(), "efa"), "libfabric").status == Status::kFailure);
  }
  const Setting allowed("FI_EFA_USE_DEVICE_RDMA", "1");
  CHECK(find(look(root.system(), "efa+gpu"), "libfabric").status == Status::kOk);

  System system = root.system();
  system.libfabric = {"libno-such-fabric.so.1"};
  CHECK(find(look(system, "efa"), "libfabric").status == Status::kFailure);
  system = root.system();
  system.plugin_files = {};
  const Finding plugin = find(look(system, "efa+gpu"), "nccl_plugin");
  CHECK(plugin.status == Status::kFailure);
  CHECK(plugin.message == "no libnccl-net.so was found");
}

TEST_CASE("the libfabric of NCCL's plugin is checked") {
  const FakeRoot root;
  const Setting setting("MPZERO_FAKE_FABRIC", "efa");
  System system = root.system();
  CHECK(survey_fabric(libfabric_files(system, plugin_of(system))).file == stand_in("fake_fabric"));
  system.plugin_files = {stand_in("fake_full_plugin")};
  const FabricSurvey survey = survey_fabric(libfabric_files(system, plugin_of(system)));
  CHECK(survey.file == stand_in("fake_full_plugin"));
  CHECK(survey.efa);
  CHECK_FALSE(survey.efa_gpu_memory);
  CHECK(survey.problem.empty());

  CHECK_THAT(survey_fabric({stand_in("no_plugin"), "libno-such-fabric.so.1"}).problem,
             Catch::Contains("libno-such-fabric.so.1"));
  CHECK(survey_fabric({stand_in("no_plugin")}).problem == "no library provides fi_getinfo");
}

TEST_CASE("the system's libfabric, if installed, is queried as documented", "[libfabric]") {
  const FabricSurvey survey = survey_fabric({"libfabric.so.1"});
  if (!survey.library) {
    skip_test("libfabric.so.1");
    return;
  }
  CHECK_FALSE(survey.version.empty());
  CHECK_THAT(survey.file, Catch::Contains("libfabric.so"));
  CHECK_FALSE(survey.providers.empty());
}

TEST_CASE("the instance type is read from the firmware or from NCCL's plugin setting") {
  const FakeRoot root;
  const System system = root.system();
  CHECK(check_instance(system).message == "not an EC2 instance");
  root.write("sys/devices/virtual/dmi/id/sys_vendor", "Some Maker\n");
  root.write("sys/devices/virtual/dmi/id/product_name", "p5.48xlarge\n");
  CHECK(instance_type(system).empty());
  root.make_instance("p5.48xlarge");
  CHECK(instance_type(system) == "p5.48xlarge");
  CHECK(check_instance(system).message == "p5.48xlarge");
  root.make_instance("p9.48xlarge");
  CHECK(check_instance(system).status == Status::kOk);
  CHECK_THAT(check_instance(system).message, Catch::Contains("not in mpzero's table"));
  root.make_instance("c7i.48xlarge");
  CHECK_THAT(check_instance(system).message, Catch::Contains("not in mpzero's table"));

  // A container that hides the firmware's tables hides them from NCCL's plugin too.
  std::filesystem::remove_all(root.path() / "sys/devices/virtual/dmi");
  root.write("sys/bus/pci/devices/0000:00:05.0/vendor", "0x1d0f\n");
  const Finding hidden = check_instance(system);
  CHECK(hidden.status == Status::kWarning);
  CHECK_THAT(hidden.remedy, Catch::Contains("OFI_NCCL_FORCE_PRODUCT_NAME"));
  const Setting forced("OFI_NCCL_FORCE_PRODUCT_NAME", "p4d.24xlarge");
  CHECK(check_instance(system).message == "p4d.24xlarge");
}

TEST_CASE("the specifications of the instance types are consistent") {
  for (const Instance& instance : all_instances()) {
    if (instance.gpus == 0) continue;
    INFO(instance.type);
    // No EFA card has more than 400 Gb/s, and sizes below 8xlarge have none.
    CHECK(instance.gigabits <= (instance.efa_devices > 0 ? 400 * instance.efa_devices : 25));
    CHECK((instance.gpus > 1 || instance.nvlink_gigabytes == 0));
    CHECK((instance.type[0] == 'p' || instance.nvlink_gigabytes == 0));
  }
  REQUIRE(find_instance("p6-b300.48xlarge"));
  CHECK(find_instance("p6-b300.48xlarge")->efa_devices == 16);
  CHECK_FALSE(find_instance("g4dn.metal"));
}

TEST_CASE("a port that is down is detected") {
  const FakeRoot root;
  root.make_efa(1);
  root.write("sys/class/infiniband/efa_1/ports/1/state", "1: DOWN\n");
  const std::vector<Finding> findings = look(root.system(), "efa+gpu");
  CHECK(find(findings, "efa_ports").message == "efa_1 is DOWN");
  CHECK(find(findings, "efa_ports").status == Status::kFailure);
}

TEST_CASE("with EFA, InfiniBand devices are ignored; without EFA, a device that is down is not a failure") {
  const FakeRoot root;
  root.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  CHECK(find(look(root.system(), "tcp"), "efa_ports").status == Status::kFailure);
  root.write("sys/class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
  const Finding some = find(look(root.system(), "tcp"), "efa_ports");
  CHECK(some.status == Status::kWarning);
  CHECK(some.message == "mlx5_0 is DOWN");
  root.make_efa(2);
  CHECK(find(look(root.system(), "efa+gpu"), "efa_ports").message == "active");
}

}  // namespace mpzero::doctor
