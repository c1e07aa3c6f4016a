#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace mpzero::io {

// Chooses how fast a checkpoint may be written during training such that steps take only a little longer than without a
// save, from measured step times. The cost of a byte, in seconds that a step takes longer, is measured during saves and
// carried over from one save to the next.
//
// The first steps during a save run at full speed: the first of them takes longer whatever is written, because states
// are held, and the speed of the disk must be measured.
class SaveThrottle {
 public:
  // How much longer steps during a save may take on average. The goal is 3%; single steps vary by about as much.
  static constexpr double kAllowedSlowdown = 0.02;

  // Reports the time of a step without a save.
  void step_alone(double seconds);
  // A save of `bytes` begins. The next one is due `steps` steps later (0: unknown).
  void begin(int64_t bytes, int64_t steps);
  // Reports the time of a step during the save and the bytes of the save `written` so far. Returns the rate in bytes
  // per second for the save, WritePace::kUnlimited if steps are not slowed down. The rate suffices to finish before the
  // next save is due, and is at least a fixed fraction of the disk's speed.
  double step_during_save(double seconds, int64_t written);

 private:
  double usual_seconds() const;
  double rate() const;
  void measure();

  std::deque<double> alone_;  // the last steps without a save
  // Cost of the saves so far: extra seconds, and bytes written in them. Older ones count less.
  double extra_seconds_ = 0;
  double bytes_ = 0;

  // The current save.
  int64_t total_ = 0;
  int64_t written_ = 0;
  int64_t steps_until_next_ = 0;
  int64_t steps_ = 0;
  double fastest_ = 0;          // bytes per second
  std::vector<double> recent_;  // steps since the last measurement
  int64_t recent_bytes_ = 0;
};

}  // namespace mpzero::io
