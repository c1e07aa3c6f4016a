#pragma once

#include <mpi.h>

#include "base/error.hpp"

// Throws Failure with the call and MPI's error message if an MPI call fails.
#define MPZERO_MPI_CHECK(call)                                                         \
  do {                                                                                 \
    const int mpi_result_ = (call);                                                    \
    if (mpi_result_ != MPI_SUCCESS) ::mpzero::parallel::throw_mpi(#call, mpi_result_); \
  } while (false)
namespace mpzero::parallel {

[[noreturn]] inline void throw_mpi(const char* call, int result) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw_failure("{} failed: {}", call, std::string(text, static_cast<size_t>(length)));
}

// Owner of an MPI communicator. The destructor frees the communicator unless it is MPI_COMM_WORLD.
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
