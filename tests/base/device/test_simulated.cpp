#include "base/device/simulated.hpp"
#include "tests/catch.hpp"

namespace mpzero {

TEST_CASE("a simulated device uses the kernels of the device that it models") {
  const c10::Device simulated(kSimulatedDevice, 0);
  const SimulatedTarget before = simulated_target();
  for (const c10::DeviceType type : {c10::DeviceType::CUDA, c10::DeviceType::CPU}) {
    simulated_target().type = type;
    CHECK(uses_gpu_kernels(simulated) == (type == c10::DeviceType::CUDA));
    CHECK(uses_cpu_kernels(simulated) == (type == c10::DeviceType::CPU));
  }
  simulated_target() = before;
  CHECK(is_simulated(simulated));
  CHECK_FALSE(is_simulated(c10::Device(c10::kCPU)));
  CHECK(uses_cpu_kernels(c10::Device(c10::kCPU)));
  CHECK(uses_gpu_kernels(c10::Device(c10::kCUDA, 0)));
}

}  // namespace mpzero
