#pragma once

#include <mpi.h>

#include "parallel/comm_thread/pauses.hpp"

namespace mpzero::parallel {

// Polls until `is_done()`, and sleeps in between: `sleep(pause)` with the pauses of Pauses. Throws what they throw.
//
//   in        | event                      | then
//   ----------+----------------------------+--------------------------------
//   kPolling  | is_done() returns true     | kDone: returns, without a sleep
//   kPolling  | is_done() returns false    | kSleeping
//   kPolling  | is_done() throws           | kFailed: throws
//   kSleeping | the pause is over          | kPolling
template <typename IsDone, typename Sleep>
void poll_patiently(IsDone is_done, Sleep sleep) {
  for (Pauses pauses; !is_done();) sleep(pauses.next());
}

// Waits for an operation of MPI that has begun, without holding a core. MPI_Wait and the blocking calls poll without a
// pause. With a thread that sleeps briefly on the same core, as the communication thread does, Linux 6.18 gave threads
// of other sessions nothing of that core for up to 37 s: also not the ranks that were waited for, which srun had
// started on another virtual node. Where mpirun counts more ranks than cores, they call sched_yield() after each poll
// (see Pauses). Returns what MPI_Wait does.
int wait_patiently(MPI_Request& request);

}  // namespace mpzero::parallel
