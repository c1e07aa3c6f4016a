#include "parallel/mpi/patient_wait.hpp"

#include <thread>

namespace mpzero::parallel {

int wait_patiently(MPI_Request& request) {
  int result = MPI_SUCCESS;
  poll_patiently(
      [&] {
        int complete = 0;
        // The caller has begun the request, which the checker does not see.
        // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker)
        result = MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
        return complete != 0 || result != MPI_SUCCESS;
      },
      [](Pauses::Duration pause) { std::this_thread::sleep_for(pause); });
  return result;
}

}  // namespace mpzero::parallel
