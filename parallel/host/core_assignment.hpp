#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace mpzero::parallel {

// A NUMA domain: cores that share a memory controller, and their memory. `number` is the OS index.
struct NumaDomain {
  int number = 0;
  std::vector<int> cores;
  int64_t bytes = 0;
};

// Cores of a machine. A core is identified by the OS index of its first usable hardware thread.
class CpuTopology {
 public:
  // Returns the topology of this machine, limited to the cores that this process may use and is bound to.
  static CpuTopology of_this_machine();
  // Return the topology of an hwloc synthetic description, e.g. "numa:2 core:8 pu:2", or of an hwloc XML export.
  static CpuTopology synthetic(const std::string& description);
  static CpuTopology from_xml(const std::string& xml);

  // Returns the usable cores in the machine's order.
  const std::vector<int>& cores() const { return cores_; }
  // Returns the domains with cores and memory that this process may use, in the machine's order.
  const std::vector<NumaDomain>& domains() const { return domains_; }
  // Returns the cores nearest to a PCI device, e.g. "0000:18:00.0", or all cores if unknown.
  std::vector<int> cores_near(const std::string& pci_device) const;
  // Returns the usable hardware threads of these cores: the first thread of each core, then the second thread of each
  // core.
  std::vector<int> hardware_threads(const std::vector<int>& cores) const;
  // Binds all threads of this process, and threads that they start later, to these hardware threads. Returns false if
  // the system call fails.
  bool bind_process(const std::vector<int>& hardware_threads) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  using Handle = std::unique_ptr<hwloc_topology, Destroy>;
  explicit CpuTopology(Handle topology);
  void find_domains();

  Handle topology_;
  std::vector<int> cores_;
  std::vector<std::vector<int>> threads_;  // hardware threads of each core
  std::vector<NumaDomain> domains_;
};

// Divides `cores` evenly among the ranks of a machine and returns the cores of each rank. Each rank first gets cores
// near its device (`near`, indexed by rank). Ranks near the same cores divide these cores evenly. A rank without free
// cores near its device gets some of the remaining cores. Every rank gets at least one core. If there are fewer cores
// than ranks, some cores are shared.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, const std::vector<std::vector<int>>& near);

// Returns the cores near each of the `ranks` ranks of a machine: the cores of one domain or, if there are more domains
// than ranks, of several consecutive domains. Consecutive ranks share a domain.
std::vector<std::vector<int>> cores_near_ranks(const std::vector<NumaDomain>& domains, int ranks);

// Returns the cores in `assigned` for a rank's threads that update optimizer states. With three or more cores, reserves
// one core for the main thread; with eight or more cores, reserves another for the threads of the data loader, NCCL and
// copies.
std::vector<int> cores_for_updates(const std::vector<int>& assigned);

// Returns the cores in `assigned` that are not in `taken`, in the order of `assigned`.
std::vector<int> left_over(const std::vector<int>& assigned, const std::vector<int>& taken);

}  // namespace mpzero::parallel
