#pragma once

#include <string>

namespace mpzero::plan {

// Rates of a GPU and its host.
class Calibration {
 public:
  static Calibration of_gpu(const std::string& name);

  std::string gpu;
  double product_flops = 0;
  double attention_forward_flops = 0, attention_backward_flops = 0;
  double memory_bytes = 0;
  double pcie_bytes = 0;
  double host_parameters = 0;
};

}  // namespace mpzero::plan
