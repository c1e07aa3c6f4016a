#include "parallel/streams/streams.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace mpzero::parallel {

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

c10::Stream new_stream(c10::Device device, bool high_priority) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, high_priority);
}

void follow_current_stream(const c10::Stream& stream) {
  c10::Event so_far(stream.device_type());
  so_far.record(current_stream(stream.device()));
  so_far.block(stream);
}

}  // namespace mpzero::parallel
