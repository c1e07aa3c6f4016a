#pragma once

namespace mpzero::plan {

// Makes PyTorch take SimulatedDevice for a device: its streams, events, tensors and operators. Once for the process;
// more calls do nothing.
void register_simulated_backend();

}  // namespace mpzero::plan
