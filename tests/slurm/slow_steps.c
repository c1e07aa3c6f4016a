// Preloaded into mpzero by tests: each step takes SLOW_SECONDS as long as the file SLOW_FILE is there, so that a test has the time to
// disturb a run of a few steps. A step's last collectives have its figures (squares, loss, votes), in a message of less than kSmall
// bytes; no other message of a step is as small. Of those that follow one another at once, the first one is slow.
#include <mpi.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const int kSmall = 128;
static const double kAtOnce = 0.25;  // seconds

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request) {
  static double last = 0;
  const char* file = getenv("SLOW_FILE");
  const char* seconds = getenv("SLOW_SECONDS");
  int item = 0;
  PMPI_Type_size(type, &item);
  if (file != NULL && seconds != NULL && count * item < kSmall && now() > last + kAtOnce) {
    const int ticks = (int)(atof(seconds) * 20);
    for (int i = 0; i < ticks && access(file, F_OK) == 0; ++i) usleep(50000);
    last = now();
  }
  return PMPI_Isend(data, count, type, to, tag, group, request);
}
