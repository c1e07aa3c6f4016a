#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace mpzero::parallel {

// A device that computes nothing: its streams are clocks, and work that is queued on them only takes time. With it
// `mpzero plan` runs the engine itself. What such a device is comes from app/plan/simulation.
constexpr c10::DeviceType kSimulatedDevice = c10::DeviceType::PrivateUse1;

// Whether work for the device is queued on streams while the host goes on: GPUs, and the simulated device.
inline bool has_streams(c10::Device device) { return device.is_cuda() || device.type() == kSimulatedDevice; }

// The streams of a device that has them. The streams and events of c10 are those of its backend, so that the same
// order is kept on each.
c10::Stream current_stream(c10::Device device);
c10::Stream new_stream(c10::Device device, bool high_priority = false);

// Work that `stream` gets from now on follows what the current stream of its device has.
void follow_current_stream(const c10::Stream& stream);

}  // namespace mpzero::parallel
