#pragma once

#include <mpi.h>

namespace mpzero::parallel {

// MPI's handle of a group of ranks; freed in the destructor unless it is the group of all ranks.
struct MpiGroup {
  explicit MpiGroup(MPI_Comm handle) : handle(handle) {}
  ~MpiGroup() {
    if (handle != MPI_COMM_WORLD && handle != MPI_COMM_NULL) MPI_Comm_free(&handle);
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm handle;
};

}  // namespace mpzero::parallel
