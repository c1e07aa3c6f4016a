#pragma once

#include "io/checkpoint/checkpoint.hpp"
#include "io/torch_save/pickle_value.hpp"
#include "io/torch_save/pickle_writer.hpp"

namespace mpzero::io {

// What mpzero adds to the model states, where DeepSpeed keeps what its user saves along: an entry that DeepSpeed hands
// back as client state and does not look into.
inline constexpr const char* kClientStateKey = "mpzero";

void write_client_state(pickle::Writer& out, const TrainingProgress& progress);
// Whether the state is of the save whose model states have these `global_samples`, as mpzero writes both alike. Where a
// run of DeepSpeed goes on from mpzero's checkpoint and saves what DeepSpeed has handed back, the state is of an
// earlier one: DeepSpeed's samples grow with each step.
bool is_of_save(const pickle::Value& state, int64_t global_samples);
// Fills what DeepSpeed has no place for: tokens, data position and order, seed, learning rate, configurations,
// settings.
void read_client_state(const pickle::Value& state, TrainingProgress& progress);

}  // namespace mpzero::io
