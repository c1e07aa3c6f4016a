#pragma once

#include <map>

namespace mpzero::plan {

// A resource that serves one stream at a time, e.g. one direction of PCIe. Later requests may fill earlier gaps.
class BusyLink {
 public:
  // Schedules work of `seconds` that can begin at `ready`, and returns the end time. Work may be split around earlier
  // requests.
  double use(double ready, double seconds);

 private:
  std::map<double, double> busy_;  // begin -> end of busy periods
};

}  // namespace mpzero::plan
