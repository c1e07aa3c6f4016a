#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace mpzero::parallel {

// Cores that share a memory controller, and their memory. `number` is the operating system's.
struct NumaDomain {
  int number = 0;
  std::vector<int> cores;
  int64_t bytes = 0;
};

// The cores of a machine. A core is identified by the operating system's number of its first usable hardware thread.
class CpuTopology {
 public:
  // This machine, without cores that the process may not use or is not bound to.
  static CpuTopology of_this_machine();
  // From hwloc's description of a virtual machine, e.g. "numa:2 core:8 pu:2", or its XML export.
  static CpuTopology synthetic(const std::string& description);
  static CpuTopology from_xml(const std::string& xml);

  // In the machine's order.
  const std::vector<int>& cores() const { return cores_; }
  // Domains with cores and memory that this process may use, in the machine's order.
  const std::vector<NumaDomain>& domains() const { return domains_; }
  // The cores nearest to a PCI device, e.g. "0000:18:00.0"; all cores if unknown.
  std::vector<int> cores_near(const std::string& pci_device) const;
  // The usable hardware threads of these cores: first one per core, then the next of each.
  std::vector<int> hardware_threads(const std::vector<int>& cores) const;
  // Binds all threads of this process, and threads that they start later, to these hardware threads. Returns false if
  // the system refuses.
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
  std::vector<std::vector<int>> threads_;  // of each core
  std::vector<NumaDomain> domains_;
};

// Divides `cores` evenly among the ranks of a machine, by rank. Each rank first gets cores near its device (`near`, by
// rank); ranks near the same cores share them evenly. A rank without free cores near its device gets some of the
// remaining ones. Every rank gets at least one core; if there are fewer cores than ranks, some cores are shared.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, const std::vector<std::vector<int>>& near);

// By rank, for `ranks` ranks of a machine: the cores near it, in one domain or, if there are more domains than ranks,
// in several consecutive ones. Consecutive ranks share a domain.
std::vector<std::vector<int>> cores_near_ranks(const std::vector<NumaDomain>& domains, int ranks);

// The cores of a rank for threads that update states: all except one for the rank's main thread and, with eight or more
// cores, another for the threads of the data loader, NCCL and copies.
std::vector<int> cores_for_updates(const std::vector<int>& assigned);

// The cores in `assigned` that are not in `taken`, in the order of `assigned`.
std::vector<int> left_over(const std::vector<int>& assigned, const std::vector<int>& taken);

}  // namespace mpzero::parallel
