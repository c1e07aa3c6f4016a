// Preloaded into mpzero by tests: each step takes SLOW_SECONDS as long as the file SLOW_FILE is there, so that a test has the time to
// disturb a run of a few steps. A step's last collectives have its figures (squares, loss, votes), in a message of less than kSmall
// bytes; no other message of a step is as small. The first one after a larger message is slow, and one is in each step, however fast.
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

static const int kSmall = 128;

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request) {
  static int larger_since = 0;
  const char* file = getenv("SLOW_FILE");
  const char* seconds = getenv("SLOW_SECONDS");
  int item = 0;
  PMPI_Type_size(type, &item);
  if (count * item >= kSmall) {
    larger_since = 1;
  } else if (file != NULL && seconds != NULL && larger_since) {
    const int ticks = (int)(atof(seconds) * 20);
    for (int i = 0; i < ticks && access(file, F_OK) == 0; ++i) usleep(50000);
    larger_since = 0;
  }
  return PMPI_Isend(data, count, type, to, tag, group, request);
}
