#include <sched.h>

#include <numeric>
#include <set>
#include <thread>

#include "parallel/host/core_assignment.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

std::vector<int> range(int first, int last) {
  std::vector<int> numbers(static_cast<size_t>(last - first + 1));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Two packages of two cores each, a GPU on each.
const char* const kTwoGpus = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f"
    nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003">
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001"
      complete_nodeset="0x00000001">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001"
        complete_nodeset="0x00000001" local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001"
        complete_nodeset="0x00000001">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001"
          complete_nodeset="0x00000001"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001"
        complete_nodeset="0x00000001">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001"
          complete_nodeset="0x00000001"/>
      </object>
      <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[17-18]">
        <object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.0"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002"
      complete_nodeset="0x00000002">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002"
        complete_nodeset="0x00000002" local_memory="1073741824"/>
      <object type="Core" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002"
        complete_nodeset="0x00000002">
        <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002"
          complete_nodeset="0x00000002"/>
      </object>
      <object type="Core" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002"
        complete_nodeset="0x00000002">
        <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002"
          complete_nodeset="0x00000002"/>
      </object>
      <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[97-98]">
        <object type="PCIDev" pci_busid="0000:98:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="63.0"/>
      </object>
    </object>
  </object>
</topology>
)";

}  // namespace

TEST_CASE("a core is identified by its first hardware thread") {
  CHECK(CpuTopology::synthetic("numa:2 core:4 pu:1").cores() == range(0, 7));
  CHECK(CpuTopology::synthetic("numa:1 core:3 pu:2").cores() == std::vector<int>{0, 2, 4});
  // The second threads of all cores are numbered after the first ones, as on most servers.
  CHECK(CpuTopology::synthetic("numa:1 core:3 pu:2(indexes=0,3,1,4,2,5)").cores() == range(0, 2));
  const auto two_threads = CpuTopology::synthetic("numa:1 core:3 pu:2");
  CHECK(two_threads.hardware_threads({2, 4}) == std::vector<int>{2, 4, 3, 5});
  CHECK(two_threads.hardware_threads({}).empty());
  CHECK_FALSE(CpuTopology::of_this_machine().cores().empty());
}

TEST_CASE("cores are near the devices of their package") {
  const CpuTopology machine = CpuTopology::from_xml(kTwoGpus);
  CHECK(machine.cores() == range(0, 3));
  CHECK(machine.cores_near("0000:18:00.0") == std::vector<int>{0, 1});
  CHECK(machine.cores_near("0000:98:00.0") == std::vector<int>{2, 3});
  CHECK(machine.cores_near("0000:01:00.0") == machine.cores());
  CHECK(machine.cores_near("nonsense") == machine.cores());
}

TEST_CASE("ranks share the cores near their devices") {
  const std::vector<int> all = range(0, 15), left = range(0, 7), right = range(8, 15);
  // The devices are in another order than the packages.
  const auto assigned = divide_cores(all, {right, left, right, left});
  CHECK(assigned == std::vector<std::vector<int>>{range(8, 11), range(0, 3), range(12, 15), range(4, 7)});
  CHECK(divide_cores(all, {all}) == std::vector<std::vector<int>>{all});
  CHECK(divide_cores(all, {all, all}) == std::vector<std::vector<int>>{left, right});
}

TEST_CASE("if many ranks are near the same cores, some ranks get other cores") {
  const std::vector<int> all = range(0, 15), left = range(0, 7);
  const auto assigned = divide_cores(all, {left, left, left, left});
  std::set<int> taken;
  for (size_t rank = 0; rank < 4; ++rank) {
    CHECK(assigned[rank].size() == 4);
    CHECK(std::count_if(assigned[rank].begin(), assigned[rank].end(), [](int core) { return core < 8; }) == 2);
    taken.insert(assigned[rank].begin(), assigned[rank].end());
  }
  CHECK(taken.size() == 16);
}

TEST_CASE("a single rank near a package gets its full quota") {
  const std::vector<int> all = range(0, 15), right = range(8, 15);
  // Rank 0 has no known device; rank 1 keeps the cores near its device.
  const auto assigned = divide_cores(all, {all, right});
  CHECK(assigned[1] == right);
  CHECK(assigned[0] == range(0, 7));
}

TEST_CASE("divides cores that do not divide evenly, and shares cores if there are fewer than ranks") {
  const auto uneven = divide_cores(range(0, 6), std::vector<std::vector<int>>(3, range(0, 6)));
  CHECK(uneven[0].size() + uneven[1].size() + uneven[2].size() == 7);
  for (const std::vector<int>& assigned : uneven) CHECK(assigned.size() >= 2);
  const std::vector<int> two{4, 9};
  CHECK(divide_cores(two, {two, two, two}) == std::vector<std::vector<int>>{{4}, {9}, {4}});
}

TEST_CASE("a machine has its NUMA domains, and each rank is near one or several of them") {
  const auto machine = CpuTopology::synthetic("package:2 numa:2 core:3 pu:2");
  REQUIRE(machine.domains().size() == 4);
  CHECK(machine.domains()[1].number == 1);
  CHECK(machine.domains()[1].cores == std::vector<int>{6, 8, 10});
  CHECK(machine.domains()[3].bytes > 0);
  CHECK(CpuTopology::synthetic("core:4 pu:1").domains().size() == 1);
  CHECK(CpuTopology::from_xml(kTwoGpus).domains()[1].cores == std::vector<int>{2, 3});
  CHECK(CpuTopology::from_xml(kTwoGpus).domains()[1].bytes == 1 << 30);

  const std::vector<NumaDomain> four = machine.domains();
  const auto cores = [&](int first, int last) {
    std::vector<int> all;
    for (int i = first; i <= last; ++i) {
      all.insert(all.end(), four[static_cast<size_t>(i)].cores.begin(), four[static_cast<size_t>(i)].cores.end());
    }
    return all;
  };
  using Near = std::vector<std::vector<int>>;
  CHECK(cores_near_ranks(four, 1) == Near{machine.cores()});
  CHECK(cores_near_ranks(four, 2) == Near{cores(0, 1), cores(2, 3)});
  CHECK(cores_near_ranks(four, 3) == Near{cores(0, 0), cores(1, 1), cores(2, 3)});
  CHECK(cores_near_ranks(four, 4) == Near{cores(0, 0), cores(1, 1), cores(2, 2), cores(3, 3)});
  CHECK(cores_near_ranks(CpuTopology::synthetic("numa:2 core:2 pu:1").domains(), 4) ==
        Near{{0, 1}, {0, 1}, {2, 3}, {2, 3}});
}

TEST_CASE("a process and the threads that it starts are bound to its cores") {
  const auto machine = CpuTopology::of_this_machine();
  const auto allowed = [] {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    return set;
  };
  const cpu_set_t before = allowed();
  REQUIRE(machine.bind_process({machine.cores().front()}));
  CHECK(CpuTopology::of_this_machine().cores() == std::vector<int>{machine.cores().front()});
  int of_thread = 0;
  std::thread([&] {
    const cpu_set_t set = allowed();
    of_thread = CPU_COUNT(&set);
  }).join();
  CHECK(of_thread == 1);
  CHECK(machine.bind_process(machine.hardware_threads(machine.cores())));
  const cpu_set_t after = allowed();
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("updates leave cores for concurrent threads") {
  CHECK(cores_for_updates(range(0, 15)) == range(2, 15));
  CHECK(cores_for_updates({4, 6, 9}) == std::vector<int>{6, 9});
  CHECK(cores_for_updates({4, 6}) == std::vector<int>{4, 6});
  CHECK(cores_for_updates({4}) == std::vector<int>{4});
}

TEST_CASE("returns the cores that a rank's updates do not use") {
  const auto machine = CpuTopology::synthetic("numa:1 core:8 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)");
  const std::vector<int> assigned = machine.hardware_threads(machine.cores());
  CHECK(left_over(assigned, machine.hardware_threads(cores_for_updates(machine.cores()))) ==
        std::vector<int>{0, 1, 8, 9});
  CHECK(left_over({4, 6}, {6, 4}).empty());
  CHECK(left_over({6, 4}, {}) == std::vector<int>{6, 4});
}

}  // namespace mpzero::parallel
