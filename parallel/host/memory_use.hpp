#pragma once

#include <cstdint>

namespace mpzero::parallel {

// Bytes of one rank's training state, by purpose.
struct MemoryUse {
  // Bytes on the training device.
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer_states = 0;
  int64_t units_in_flight = 0;  // buffers of full units that are gathered, used or reduced
  // Bytes in host memory if the training device is a GPU.
  int64_t host_optimizer_states = 0;
  int64_t host_parameters = 0;
  int64_t host_gradients = 0;  // copies of released gradients
  int64_t host_staging = 0;    // gradients and parameters in transit
  int64_t host_spares = 0;     // spare states for updates before the gradient norm is known

  MemoryUse& operator+=(const MemoryUse& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    optimizer_states += other.optimizer_states;
    units_in_flight += other.units_in_flight;
    host_optimizer_states += other.host_optimizer_states;
    host_parameters += other.host_parameters;
    host_gradients += other.host_gradients;
    host_staging += other.host_staging;
    host_spares += other.host_spares;
    return *this;
  }
};

// Return the total number of bytes on the training device (device_bytes) or in host memory (host_bytes).
inline int64_t device_bytes(const MemoryUse& use) {
  return use.parameters + use.gradients + use.optimizer_states + use.units_in_flight;
}
inline int64_t host_bytes(const MemoryUse& use) {
  return use.host_optimizer_states + use.host_parameters + use.host_gradients + use.host_staging + use.host_spares;
}

}  // namespace mpzero::parallel
