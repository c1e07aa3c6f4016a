#pragma once

#include <mpi.h>

#include "parallel/comm_thread/pauses.hpp"

namespace mpzero::parallel {

// Polls until is_done() returns true, and calls sleep(pause) between polls, with the backoff of Pauses. Exceptions from
// is_done() and sleep() are propagated.
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

// Waits for a started MPI operation, with sleeps between polls, and returns the result of MPI_Wait. MPI_Wait and MPI's
// blocking calls poll without a pause. If another thread on the same core, such as the communication thread, sleeps
// briefly, Linux 6.18 may starve threads of other sessions on that core (measured: up to 37 s). If mpirun considers the
// host oversubscribed, the blocking calls call sched_yield() after each poll (see Pauses).
int wait_patiently(MPI_Request& request);

}  // namespace mpzero::parallel
