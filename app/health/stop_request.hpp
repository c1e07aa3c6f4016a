#pragma once

#include <csignal>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

// Signals that ask this process to stop training: SIGTERM, SIGUSR1, SIGUSR2, SIGHUP and SIGINT. The first one requests
// a stop; a second SIGINT requests an immediate end. Signals that were ignored when the program started (nohup) stay
// ignored.
class StopRequest {
 public:
  // Handles the signals until it is destroyed. At most one object at a time in a process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Requests a stop from any thread, unless one is already requested. `reason`: a noun phrase for the log.
  // `seconds_left`: until this host ends; 0: unknown.
  void request(const std::string& reason, double seconds_left = 0);

  // Call at the end of the run: ignores all signals except SIGINT from now on, even after this object is destroyed.
  // Stop signals are often repeated, and would change the exit status of a process that is finalizing MPI.
  void ignore_signals();

  bool requested() const { return source() != 0; }
  // Whether request() came before any signal.
  bool is_own() const { return source() < 0; }
  // "SIGTERM", or the `reason` of request(); empty: no stop is requested.
  std::string reason() const;
  // Seconds since the stop was requested; 0 if it was not.
  double seconds_since() const;
  // Seconds until this host ends, negative afterwards; 0: unknown.
  double seconds_left() const;
  // Whether SIGINT has arrived twice.
  bool is_immediate() const;
  // For poll(): readable once a signal or a request has arrived; see drain().
  int descriptor() const { return pipe_[0]; }
  // Makes descriptor() unreadable until the next signal or request.
  void drain() const;

 private:
  // The first signal that arrived; 0: none; negative: request() came first.
  static int source();

  int pipe_[2] = {-1, -1};
  mutable std::mutex mutex_;  // guards the following two
  std::string own_reason_;
  double own_seconds_left_ = 0;
  std::vector<std::pair<int, struct sigaction>> before_;
};

// "SIGTERM", or "signal 40".
std::string signal_name(int signal);

}  // namespace mpzero
