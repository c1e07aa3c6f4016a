#pragma once

#include <map>

namespace mpzero::plan {

// A resource that serves one of several streams at a time: a direction of PCIe, a network, the cores. Later requests
// may fill earlier gaps, so it is never idle while a stream waits.
class BusyLink {
 public:
  // Schedules work of `seconds` that can begin at `ready`. Returns its end; earlier requests may interrupt it.
  double use(double ready, double seconds);

 private:
  std::map<double, double> busy_;  // begin -> end of separate busy periods
};

}  // namespace mpzero::plan
