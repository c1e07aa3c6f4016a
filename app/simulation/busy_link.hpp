#pragma once

#include <map>

namespace mpzero::plan {

// A resource that serves one stream at a time, e.g. one direction of PCIe. Later requests may use idle periods between
// earlier requests.
class BusyLink {
 public:
  // Schedules a request that takes `seconds` and can begin at time `ready`. Returns the end time. A request may be
  // split into parts before and after earlier requests.
  double use(double ready, double seconds);

 private:
  std::map<double, double> busy_;  // begin -> end of busy periods
};

}  // namespace mpzero::plan
