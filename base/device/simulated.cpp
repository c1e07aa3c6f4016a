#include "base/device/simulated.hpp"

namespace mpzero {

SimulatedTarget& simulated_target() {
  static SimulatedTarget target;
  return target;
}

}  // namespace mpzero
