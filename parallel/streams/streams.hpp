#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "base/device/simulated.hpp"

namespace mpzero::parallel {

// Returns true if the device runs work asynchronously on streams: GPUs and the simulated device.
inline bool has_streams(c10::Device device) { return device.is_cuda() || is_simulated(device); }

// Return the current stream, or a new stream, of a device for which has_streams() is true. Streams and events of c10
// use the device's backend, so work is ordered in the same way on each device.
c10::Stream current_stream(c10::Device device);
c10::Stream new_stream(c10::Device device, bool high_priority = false);

// Makes later work on `stream` wait for the work queued on the current stream of the same device.
void follow_current_stream(const c10::Stream& stream);

}  // namespace mpzero::parallel
