#pragma once

#include <csignal>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

// Handles the signals that request a stop of training: SIGTERM, SIGUSR1, SIGUSR2, SIGHUP and SIGINT. The first signal
// requests a stop. A second SIGINT requests an immediate exit. Signals that are ignored at program start (nohup) remain
// ignored.
class StopRequest {
 public:
  // Installs signal handlers for the lifetime of this object. A process may have only one StopRequest at a time.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Requests a stop unless a stop has already been requested. Thread-safe. `reason`: a noun phrase for the log.
  // `seconds_left`: time until this host shuts down; 0 if unknown.
  void request(const std::string& reason, double seconds_left = 0);

  // Ignores all signals except SIGINT from now on, even after this object is destroyed. Must be called at the end of
  // the run. Launchers often repeat stop signals, which would otherwise change the exit status during MPI_Finalize.
  void ignore_signals();

  bool requested() const { return source() != 0; }
  // Returns true if request() was called before any signal arrived.
  bool is_own() const { return source() < 0; }
  // Returns the signal name, such as "SIGTERM", or the `reason` of request(). Returns an empty string if no stop has
  // been requested.
  std::string reason() const;
  // Returns the seconds since the stop request; 0 if no stop has been requested.
  double seconds_since() const;
  // Returns the seconds until this host shuts down; 0 if unknown, negative after the expected time.
  double seconds_left() const;
  // Returns true if SIGINT has arrived twice.
  bool is_immediate() const;
  // Returns a file descriptor for poll(), which is readable after a signal or request until drain() is called.
  int descriptor() const { return pipe_[0]; }
  // Makes descriptor() unreadable until the next signal or request.
  void drain() const;

 private:
  // Returns the first signal; 0 if there is none; negative if request() was called first.
  static int source();

  int pipe_[2] = {-1, -1};
  mutable std::mutex mutex_;  // guards own_reason_ and own_seconds_left_
  std::string own_reason_;
  double own_seconds_left_ = 0;
  std::vector<std::pair<int, struct sigaction>> before_;
};

// Returns the name of a signal, such as "SIGTERM" or "signal 40".
std::string signal_name(int signal);

}  // namespace mpzero
