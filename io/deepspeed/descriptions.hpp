#pragma once

#include <cstdint>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/deepspeed/plan.hpp"
#include "io/torch_save/pickle_value.hpp"

// Pickles of DeepSpeed 0.19.8 checkpoints. The keys match deepspeed/runtime/engine.py (_common_checkpoint_state,
// _save_zero_checkpoint) and runtime/zero/{stage_1_and_2,stage3}.py (state_dict).
namespace mpzero::io {

// Value of the `ds_version` entry in the files, which DeepSpeed requires.
inline constexpr const char* kDeepSpeedVersion = "0.19.8";

// Returns the pickle of the model states file. In stages 1 and 2, storage "0" contains all weights in flat order, in
// bf16 or fp32. In stage 3, storage "0" is empty because only the optimizer files contain weights.
std::string describe_model(const DeepSpeedLayout& layout, const TrainingProgress& progress,
                           const DeepSpeedSettings& settings);

// Returns the pickle of a rank's optimizer file. Each parameter group has three storages: master weights, exp_avg and
// exp_avg_sq.
std::string describe_optimizer(const DeepSpeedLayout& layout, int rank, const TrainingProgress& progress,
                               const DeepSpeedSettings& settings);

// Returns the number of elements of a storage in an optimizer file. In stages 1 and 2, DeepSpeed removes the padding
// only from the master weights.
int64_t state_numel(const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind);

// Key of mpzero's entry in the model states. DeepSpeed returns the entry as client state.
inline constexpr const char* kClientStateKey = "mpzero";
// Returns true if the client state is from the same save as the model states with `global_samples`. mpzero writes
// `global_samples` to both. If a DeepSpeed run resumes from mpzero's checkpoint and saves the client state again, the
// number in the client state is outdated, because DeepSpeed increases global_samples with each step.
bool is_of_save(const pickle::Value& state, int64_t global_samples);
// Sets the fields of `progress` that DeepSpeed itself does not store: tokens, data position, seed, learning rate and
// settings.
void read_client_state(const pickle::Value& state, TrainingProgress& progress);

}  // namespace mpzero::io
