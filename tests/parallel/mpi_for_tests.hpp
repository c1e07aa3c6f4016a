#pragma once

#include "parallel/mpi/mpi_runtime.hpp"

namespace mpzero::parallel {

// MPI for a test program: started at the first use, ended with the program.
inline MpiRuntime& mpi() {
  static MpiRuntime runtime(nullptr, nullptr);
  return runtime;
}

}  // namespace mpzero::parallel
