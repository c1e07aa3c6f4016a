#pragma once

#include <memory>
#include <string>
#include <vector>

struct hwloc_topology;

namespace mpzero::parallel {

// The cores of a machine, each named by its first hardware thread that may be used: the operating system's number.
class CpuTopology {
 public:
  // As this process sees it: what it is not allowed or not bound to is left out.
  static CpuTopology of_this_machine();
  // From hwloc's description of a machine that is not there, e.g. "numa:2 core:8 pu:2", or its XML export.
  static CpuTopology synthetic(const std::string& description);
  static CpuTopology from_xml(const std::string& xml);

  // In the machine's order.
  const std::vector<int>& cores() const { return cores_; }
  // Those of them that are nearest to a PCI device, e.g. "0000:18:00.0"; all where that is not known.
  std::vector<int> cores_near(const std::string& pci_device) const;
  // The hardware threads of these cores that may be used: first one of each core, then the next of each.
  std::vector<int> hardware_threads(const std::vector<int>& cores) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  using Handle = std::unique_ptr<hwloc_topology, Destroy>;
  explicit CpuTopology(Handle topology);

  Handle topology_;
  std::vector<int> cores_;
  std::vector<std::vector<int>> threads_;  // of each core
};

// Divides `cores` among the ranks of a machine evenly, by rank: each gets the cores near its device first, `near` by
// rank, and ranks near the same cores share them. A rank that finds none there gets of those that are left. Every rank
// gets one core at least; where there are fewer cores than ranks, some share.
std::vector<std::vector<int>> divide_cores(const std::vector<int>& cores, const std::vector<std::vector<int>>& near);

// Of a rank's cores those for threads that update states: one is left to the rank's own thread, and from eight on one
// more to those of the data loader, of NCCL and of the copies.
std::vector<int> cores_for_updates(const std::vector<int>& share);

// What is in `share` and not in `taken`, in the order of the share.
std::vector<int> left_over(const std::vector<int>& share, const std::vector<int>& taken);

}  // namespace mpzero::parallel
