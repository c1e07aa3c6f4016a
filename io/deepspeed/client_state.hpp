#pragma once

#include "io/checkpoint/checkpoint.hpp"
#include "io/torch_save/pickle_value.hpp"
#include "io/torch_save/pickle_writer.hpp"

namespace mpzero::io {

// Key of mpzero's additions to the model states, where DeepSpeed stores its user's client state: DeepSpeed returns the
// entry as client state and does not look into it.
inline constexpr const char* kClientStateKey = "mpzero";

void write_client_state(pickle::Writer& out, const TrainingProgress& progress);
// Whether the state belongs to the save whose model states have these `global_samples`; mpzero writes the same number
// to both. If a run of DeepSpeed resumes from mpzero's checkpoint and saves the client state that DeepSpeed returned,
// the state is of an earlier save: DeepSpeed's samples grow with each step.
bool is_of_save(const pickle::Value& state, int64_t global_samples);
// Fills in what DeepSpeed has no place for: tokens, data position and order, seed, learning rate, configurations,
// settings.
void read_client_state(const pickle::Value& state, TrainingProgress& progress);

}  // namespace mpzero::io
