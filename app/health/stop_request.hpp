#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

// Signals that ask this process to stop training: SIGTERM, SIGUSR1, SIGUSR2, SIGHUP and SIGINT. The first one requests
// a stop; a second SIGINT asks to end immediately. Signals that were ignored when the program started (nohup) stay
// ignored.
class StopRequest {
 public:
  // Handles the signals until it is destroyed. At most one object at a time in a process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool requested() const { return signal() != 0; }
  // The first signal that arrived; 0: none.
  int signal() const;
  // Seconds since the first signal; 0 if there was none.
  double seconds_since() const;
  // Whether SIGINT has arrived twice.
  bool is_immediate() const;
  // For poll(): readable once a signal has arrived; see drain().
  int descriptor() const { return pipe_[0]; }
  // Makes it unreadable until the next signal.
  void drain() const;

 private:
  int pipe_[2] = {-1, -1};
  std::vector<std::pair<int, struct sigaction>> before_;
};

// "SIGTERM", or "signal 40".
std::string signal_name(int signal);

}  // namespace mpzero
