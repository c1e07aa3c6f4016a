#include "app/plan/calibration.hpp"

#include "base/error.hpp"

namespace mpzero::plan {

Calibration Calibration::of_gpu(const std::string& name) {
  Calibration rates;
  rates.gpu = name;
  double peak = 0, memory = 0, pcie = 0;
  if (name == "H200") {
    peak = 989e12, memory = 4.8e12, pcie = 55e9;
  } else if (name == "H100") {
    peak = 989e12, memory = 3.35e12, pcie = 55e9;
  } else if (name == "A100") {
    peak = 312e12, memory = 2.0e12, pcie = 25e9;
  } else if (name == "L40S") {
    peak = 362e12, memory = 0.864e12, pcie = 25e9;
  } else {
    throw_user_error("there is no calibration of {}: give the folder of one with --calibration", name);
  }
  rates.product_flops = 0.72 * peak;
  rates.attention_forward_flops = 0.55 * peak;
  rates.attention_backward_flops = 0.42 * peak;
  rates.memory_bytes = 0.8 * memory;
  rates.pcie_bytes = pcie;
  rates.host_parameters = 6e9;
  return rates;
}

}  // namespace mpzero::plan
