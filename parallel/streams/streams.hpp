#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "base/device/simulated.hpp"

namespace mpzero::parallel {

// Whether work for the device is queued on streams while the host goes on: GPUs, and the simulated device.
inline bool has_streams(c10::Device device) { return device.is_cuda() || is_simulated(device); }

// The streams of a device that has them. The streams and events of c10 are those of its backend, so that the same
// order is kept on each.
c10::Stream current_stream(c10::Device device);
c10::Stream new_stream(c10::Device device, bool high_priority = false);

// Work that `stream` gets from now on follows what the current stream of its device has.
void follow_current_stream(const c10::Stream& stream);

}  // namespace mpzero::parallel
