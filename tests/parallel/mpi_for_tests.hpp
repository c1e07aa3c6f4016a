#pragma once

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::parallel {

// MPI for a test program: initialized at the first use, and finalized when the program ends.
inline MpiRuntime& mpi() {
  static MpiRuntime runtime(nullptr, nullptr, MpiThreads::kSeveral);
  return runtime;
}

}  // namespace mpzero::parallel
