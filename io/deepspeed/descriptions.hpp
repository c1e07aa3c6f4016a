#pragma once

#include <cstdint>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/pickle_value.hpp"

// The pickles of DeepSpeed 0.19.8's files, key by key as deepspeed/runtime/engine.py (_common_checkpoint_state,
// _save_zero_checkpoint) and runtime/zero/{stage_1_and_2,stage3}.py (state_dict) fill them.
namespace mpzero::io {

// The version of DeepSpeed that writes such files. DeepSpeed requires one.
inline constexpr const char* kDeepSpeedVersion = "0.19.8";

// The pickle of the model file. Stages 1 and 2: storage "0" holds all weights in the flat order, in bf16 or fp32. Stage
// 3: it is empty, since the weights are only in the optimizer files.
std::string describe_model(const DeepSpeedLayout& layout, const TrainingProgress& progress,
                           const DeepSpeedSettings& settings);

// The pickle of a rank's optimizer file: three storages per group, the master weights, exp_avg and exp_avg_sq.
std::string describe_optimizer(const DeepSpeedLayout& layout, int rank, const TrainingProgress& progress,
                               const DeepSpeedSettings& settings);

// Number of elements of such a storage. In stages 1 and 2 DeepSpeed removes the padding from the master weights only.
int64_t state_numel(const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind);

// mpzero's additions to the model states, where DeepSpeed stores its user's client state: DeepSpeed returns the entry
// as client state without reading it.
inline constexpr const char* kClientStateKey = "mpzero";
// Whether the state belongs to the save whose model states have these `global_samples`; mpzero writes the same number
// to both. If a DeepSpeed run resumes from mpzero's checkpoint and saves the returned client state again, the state is
// from an earlier save: DeepSpeed's samples grow with each step.
bool is_of_save(const pickle::Value& state, int64_t global_samples);
// Fills in the fields that DeepSpeed lacks: tokens, data position and order, seed, learning rate, configurations,
// settings.
void read_client_state(const pickle::Value& state, TrainingProgress& progress);

}  // namespace mpzero::io
