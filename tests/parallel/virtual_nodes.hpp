#pragma once

#include <memory>
#include <vector>

#include "parallel/comm/mpi_communicator.hpp"
#include "parallel/zero/levels.hpp"
#include "tests/parallel/mpi_for_tests.hpp"

namespace mpzero::parallel {

// Communicators for one use of virtual nodes, which have `ranks_per_node` consecutive ranks each.
class VirtualNodes {
 public:
  explicit VirtualNodes(int ranks_per_node)
      : node_(mpi().split(mpi().rank() / ranks_per_node)),
        place_(mpi().split(mpi().rank() % ranks_per_node)),
        intra_node_(*node_),
        inter_node_(*place_) {}

  Levels levels() { return {intra_node_, inter_node_}; }

 private:
  std::unique_ptr<MpiRuntime> node_;
  std::unique_ptr<MpiRuntime> place_;
  MpiCommunicator intra_node_;
  MpiCommunicator inter_node_;
};

// Returns all numbers of ranks per node that result in several nodes of equal size.
inline std::vector<int> node_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size < mpi().world_size(); ++size) {
    if (mpi().world_size() % size == 0) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace mpzero::parallel
