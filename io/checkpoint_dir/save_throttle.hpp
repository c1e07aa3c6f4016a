#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace mpzero::io {

// How fast a checkpoint may be written beside training so that steps take no more than a little longer than without,
// by what steps take. What a byte costs is measured, in seconds of a step that would else have ended sooner, while
// saves go on, and carried over from one save to the next.
//
// The first steps beside a save go on at full speed: states that are held make the first of them longer whatever is
// written, and what the disk takes is to be known.
class SaveThrottle {
 public:
  // How much longer steps beside a save may take on average. The goal is 3%; single steps differ by about as much.
  static constexpr double kAllowedSlowdown = 0.02;

  // A step without a save beside it took so long.
  void step_alone(double seconds);
  // A save of `bytes` begins; the next one is due `steps` steps later, 0: none is known of.
  void begin(int64_t bytes, int64_t steps);
  // A step beside it took so long; `written`: bytes of the save so far. Returns the bytes a second at which it may go
  // on, WritePace::kUnlimited where steps do not suffer. That is enough for the save to end before the next one is due,
  // and a fixed share at least of what the disk takes.
  double step_beside(double seconds, int64_t written);

 private:
  double usual_seconds() const;
  double rate() const;
  void measure();

  std::deque<double> alone_;  // the last steps without a save
  // What saves have cost: seconds more than usual, and bytes that were written meanwhile. Older ones count less.
  double extra_seconds_ = 0;
  double bytes_ = 0;

  // Of the save under way.
  int64_t total_ = 0;
  int64_t written_ = 0;
  int64_t steps_until_next_ = 0;
  int64_t steps_ = 0;
  double fastest_ = 0;          // bytes a second
  std::vector<double> recent_;  // steps since the last measurement
  int64_t recent_bytes_ = 0;
};

}  // namespace mpzero::io
