#pragma once

#include <map>

namespace mpzero::plan {

// Something that several streams share and that serves one of them at a time: a direction of PCIe, a network, the
// cores. It is not idle while somebody waits for it: what is asked for later may run in a gap before.
class BusyLink {
 public:
  // Work of `seconds` that can begin at `ready`. Returns when it ends; it may be interrupted by what was asked for
  // before.
  double use(double ready, double seconds);

 private:
  std::map<double, double> busy_;  // begin -> end of periods that do not touch
};

}  // namespace mpzero::plan
