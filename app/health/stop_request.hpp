#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace mpzero {

// Signals that ask this process to stop training: SIGTERM, SIGUSR1, SIGUSR2, SIGHUP and SIGINT. From the first one on
// stop is requested; a second SIGINT asks to end at once. What was ignored when the program started (nohup) stays so.
class StopRequest {
 public:
  // Takes the signals until it is destroyed. One at a time in a process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool requested() const { return signal() != 0; }
  // The first signal that came; 0: none.
  int signal() const;
  // Since it came; 0 where none has.
  double seconds_since() const;
  // SIGINT has come twice.
  bool at_once() const;
  // Readable once a signal has come, for poll(); see drain().
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
