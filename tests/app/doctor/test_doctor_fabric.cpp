#include "app/doctor/fabric.hpp"
#include "parallel/rdma_devices.hpp"
#include "tests/app/doctor/doctor_checks.hpp"

namespace mpzero::doctor {
namespace {

const Job kTwoNodes = {.local_ranks = 8, .world_size = 16, .hosts = 2};

std::vector<Finding> look(const System& system, const std::string& providers) {
  const Setting setting("MPZERO_FAKE_FABRIC", providers);
  return check_fabric(system, kTwoNodes, survey_fabric(system.libfabric));
}

}  // namespace

TEST_CASE("EFA devices are told by their driver or their name") {
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

TEST_CASE("a healthy p5 passes, and a machine without EFA needs none") {
  const FakeRoot root;
  CHECK(worst(look(root.system(), "tcp")) == Status::kOk);
  root.make_instance("p5.48xlarge");
  root.make_efa(32);
  const std::vector<Finding> findings = look(root.system(), "efa+gpu efa+gpu tcp");
  CHECK(worst(findings) == Status::kOk);
  CHECK(find(findings, "libfabric").message == "2.1, provider efa, GPU memory");
  CHECK(find(findings, "efa_counters").message == "32 readable");
}

TEST_CASE("fewer EFA devices than the instance type has") {
  const FakeRoot root;
  root.make_instance("p4d.24xlarge");
  const Finding none = find(look(root.system(), "tcp"), "efa_devices");
  CHECK(none.status == Status::kFailure);
  CHECK(none.message == "0 EFA devices where a p4d.24xlarge can have 4");
  root.make_efa(3);
  CHECK(find(look(root.system(), "efa+gpu"), "efa_devices").status == Status::kWarning);
}

TEST_CASE("a missing provider, library, GPU memory or plugin is a failure where there is EFA") {
  const FakeRoot root;
  root.make_instance("p4d.24xlarge");
  root.make_efa(4);
  const Finding missing = find(look(root.system(), "tcp udp"), "libfabric");
  CHECK(missing.status == Status::kFailure);
  CHECK(missing.message == "2.1 lists no provider efa for the 4 devices (it lists tcp, udp)");
  CHECK(find(look(root.system(), ""), "libfabric").status == Status::kFailure);
  // What runs over EFA in layers is not what NCCL's plugin takes.
  CHECK(find(look(root.system(), "efa;ofi_rxd"), "libfabric").status == Status::kFailure);
  CHECK(find(look(root.system(), "efa"), "gpudirect").status == Status::kFailure);

  System system = root.system();
  system.libfabric = {"libno-such-fabric.so.1"};
  CHECK(find(look(system, "efa"), "libfabric").status == Status::kFailure);
  system = root.system();
  system.plugin_files = {};
  const Finding plugin = find(look(system, "efa+gpu"), "nccl_plugin");
  CHECK(plugin.status == Status::kFailure);
  CHECK(plugin.message == "no libnccl-net.so was found");
}

TEST_CASE("a port that is down and counters that cannot be read are found") {
  const FakeRoot root;
  root.make_efa(1);
  root.write("sys/class/infiniband/efa_1/ports/1/state", "1: DOWN\n");
  const std::vector<Finding> findings = look(root.system(), "efa+gpu");
  CHECK(find(findings, "efa_ports").message == "efa_1 is 1: DOWN");
  CHECK(find(findings, "efa_ports").status == Status::kFailure);
  CHECK(find(findings, "efa_counters").message == "none can be read of efa_1");
  CHECK(find(findings, "efa_counters").status == Status::kWarning);
}

}  // namespace mpzero::doctor
