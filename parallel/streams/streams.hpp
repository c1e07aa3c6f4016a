#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "base/device/simulated.hpp"

namespace mpzero::parallel {

// Whether work for the device is queued on streams, asynchronously to the host: GPUs, and the simulated device.
inline bool has_streams(c10::Device device) { return device.is_cuda() || is_simulated(device); }

// The streams of a device that has them. c10's streams and events use the device's backend, so that work is ordered
// alike on each.
c10::Stream current_stream(c10::Device device);
c10::Stream new_stream(c10::Device device, bool high_priority = false);

// Makes work queued on `stream` from now on follow the work queued on its device's current stream.
void follow_current_stream(const c10::Stream& stream);

}  // namespace mpzero::parallel
