#include "parallel/host/core_assignment.hpp"

#include <hwloc.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.hpp"

namespace mpzero::parallel {
namespace {

// Minimum number of cores at which two cores are left free.
constexpr size_t kManyCores = 8;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

void check(int result, const char* call) {
  if (result != 0) throw_failure("{} failed: cannot detect the cores of this machine", call);
}

}  // namespace

void CpuTopology::Destroy::operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }

CpuTopology::CpuTopology(Handle topology) : topology_(std::move(topology)) {
  const Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology_.get())));
  const Bitmap bound(hwloc_bitmap_alloc());
  if (hwloc_topology_is_thissystem(topology_.get()) != 0 &&
      hwloc_get_cpubind(topology_.get(), bound.get(), HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  }
  // Use hardware threads if the machine does not report cores.
  const int depth = hwloc_get_type_or_below_depth(topology_.get(), HWLOC_OBJ_CORE);
  for (hwloc_obj_t core = hwloc_get_next_obj_by_depth(topology_.get(), depth, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_depth(topology_.get(), depth, core)) {
    const Bitmap usable(hwloc_bitmap_dup(core->cpuset));
    hwloc_bitmap_and(usable.get(), usable.get(), allowed.get());
    std::vector<int> threads;
    for (int pu = hwloc_bitmap_first(usable.get()); pu >= 0; pu = hwloc_bitmap_next(usable.get(), pu)) {
      threads.push_back(pu);
    }
    if (threads.empty()) continue;
    cores_.push_back(threads.front());
    threads_.push_back(std::move(threads));
  }
  find_domains();
}

void CpuTopology::find_domains() {
  for (hwloc_obj_t node = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, nullptr); node != nullptr;
       node = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, node)) {
    NumaDomain domain{.number = static_cast<int>(node->os_index),
                      .cores = {},
                      .bytes = static_cast<int64_t>(node->attr->numanode.local_memory)};
    for (const int core : cores_) {
      if (hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(core)) != 0) domain.cores.push_back(core);
    }
    // Additional memory near the same cores, such as HBM, is a separate NUMA node.
    const auto same = std::find_if(domains_.begin(), domains_.end(),
                                   [&](const NumaDomain& other) { return other.cores == domain.cores; });
    if (same != domains_.end()) {
      same->bytes += domain.bytes;
    } else if (!domain.cores.empty()) {
      domains_.push_back(std::move(domain));
    }
  }
}

CpuTopology CpuTopology::of_this_machine() {
  hwloc_topology_t topology = nullptr;
  check(hwloc_topology_init(&topology), "hwloc_topology_init");
  Handle handle(topology);
  // The kernel lists the PCI devices. hwloc's plugins would open each GPU, an X display, and libraries that leak
  // memory.
  for (const char* plugin : {"pci", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"}) {
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  }
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  check(hwloc_topology_load(topology), "hwloc_topology_load");
  return CpuTopology(std::move(handle));
}

CpuTopology CpuTopology::synthetic(const std::string& description) {
  hwloc_topology_t topology = nullptr;
  check(hwloc_topology_init(&topology), "hwloc_topology_init");
  Handle handle(topology);
  check(hwloc_topology_set_synthetic(topology, description.c_str()), "hwloc_topology_set_synthetic");
  check(hwloc_topology_load(topology), "hwloc_topology_load");
  return CpuTopology(std::move(handle));
}

CpuTopology CpuTopology::from_xml(const std::string& xml) {
  hwloc_topology_t topology = nullptr;
  check(hwloc_topology_init(&topology), "hwloc_topology_init");
  Handle handle(topology);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
  check(hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1),
        "hwloc_topology_set_xmlbuffer");
  check(hwloc_topology_load(topology), "hwloc_topology_load");
  return CpuTopology(std::move(handle));
}

std::vector<int> CpuTopology::cores_near(const std::string& pci_device) const {
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology_.get(), pci_device.c_str());
  if (device == nullptr) return cores_;
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology_.get(), device);
  std::vector<int> near;
  for (const int core : cores_) {
    if (hwloc_bitmap_isset(place->cpuset, static_cast<unsigned>(core)) != 0) near.push_back(core);
  }
  return near.empty() ? cores_ : near;
}

std::vector<int> CpuTopology::hardware_threads(const std::vector<int>& cores) const {
  std::vector<int> all;
  bool more = true;
  for (size_t n = 0; more; ++n) {
    more = false;
    for (size_t i = 0; i < cores_.size(); ++i) {
      if (n >= threads_[i].size() || std::find(cores.begin(), cores.end(), cores_[i]) == cores.end()) continue;
      all.push_back(threads_[i][n]);
      more = true;
    }
  }
  return all;
}

bool CpuTopology::bind_process(const std::vector<int>& hardware_threads) const {
  const Bitmap set(hwloc_bitmap_alloc());
  for (const int thread : hardware_threads) hwloc_bitmap_set(set.get(), static_cast<unsigned>(thread));
  return hwloc_set_cpubind(topology_.get(), set.get(), HWLOC_CPUBIND_PROCESS) == 0;
}

std::vector<std::vector<int>> cores_near_ranks(const std::vector<NumaDomain>& domains, int ranks) {
  std::vector<std::vector<int>> near(static_cast<size_t>(ranks));
  const size_t count = near.size();
  for (size_t rank = 0; rank < count; ++rank) {
    const size_t first = rank * domains.size() / count;
    const size_t end = std::max(first + 1, (rank + 1) * domains.size() / count);
    for (size_t i = first; i < std::min(end, domains.size()); ++i) {
      near[rank].insert(near[rank].end(), domains[i].cores.begin(), domains[i].cores.end());
    }
  }
  return near;
}

std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, const std::vector<std::vector<int>>& near) {
  const size_t ranks = near.size();
  std::vector<std::vector<int>> assigned(ranks);
  if (cores.empty()) return assigned;
  if (cores.size() < ranks) {
    for (size_t rank = 0; rank < ranks; ++rank) assigned[rank].push_back(cores[rank % cores.size()]);
    return assigned;
  }
  // The first ranks get the remainder.
  const auto quota = [&](size_t rank) { return cores.size() / ranks + (rank < cores.size() % ranks ? 1 : 0); };
  std::map<std::vector<int>, std::vector<size_t>> neighbours;  // ranks by nearby cores
  for (size_t rank = 0; rank < ranks; ++rank) neighbours[near[rank]].push_back(rank);
  // Starts with the ranks that have the fewest candidate cores.
  std::vector<std::pair<std::vector<int>, std::vector<size_t>>> groups(neighbours.begin(), neighbours.end());
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
  std::vector<int> left = cores;
  const auto take = [&](size_t rank, int core) {
    assigned[rank].push_back(core);
    left.erase(std::find(left.begin(), left.end(), core));
  };
  for (const auto& [near_cores, group] : groups) {
    std::vector<int> free;
    for (const int core : near_cores) {
      if (std::find(left.begin(), left.end(), core) != left.end()) free.push_back(core);
    }
    size_t next = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      const size_t even = (free.size() - next) / (group.size() - i);
      for (size_t n = std::min(even, quota(group[i])); n > 0; --n) take(group[i], free[next++]);
    }
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    while (assigned[rank].size() < quota(rank)) take(rank, left.front());
    std::sort(assigned[rank].begin(), assigned[rank].end());
  }
  return assigned;
}

std::vector<int> cores_for_updates(const std::vector<int>& assigned) {
  const size_t free = assigned.size() >= kManyCores ? 2 : assigned.size() >= 3 ? 1 : 0;
  return {assigned.begin() + static_cast<std::ptrdiff_t>(free), assigned.end()};
}

std::vector<int> left_over(const std::vector<int>& assigned, const std::vector<int>& taken) {
  std::vector<int> left;
  std::copy_if(assigned.begin(), assigned.end(), std::back_inserter(left),
               [&](int core) { return std::find(taken.begin(), taken.end(), core) == taken.end(); });
  return left;
}

}  // namespace mpzero::parallel
