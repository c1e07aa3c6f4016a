// Preloaded into mpzero by tests: each MPI_Allreduce takes SLOW_SECONDS as long as the file SLOW_FILE is there, so that a test has
// the time to disturb a run of a few steps.
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm group) {
  const char* file = getenv("SLOW_FILE");
  const char* seconds = getenv("SLOW_SECONDS");
  const int ticks = file == NULL || seconds == NULL ? 0 : (int)(atof(seconds) * 20);
  for (int i = 0; i < ticks && access(file, F_OK) == 0; ++i) usleep(50000);
  return PMPI_Allreduce(send, receive, count, type, operation, group);
}
