#pragma once

#include <cstdint>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/deepspeed/plan.hpp"

// The pickles of DeepSpeed 0.19.8's files, key by key as deepspeed/runtime/engine.py (_common_checkpoint_state,
// _save_zero_checkpoint) and runtime/zero/{stage_1_and_2,stage3}.py (state_dict) fill them.
namespace mpzero::io {

// The version whose files these are like; DeepSpeed wants one.
inline constexpr const char* kDeepSpeedVersion = "0.19.8";

// Of the model's file. Stages 1 and 2: storage "0" holds all weights in the flat order, in bf16 or fp32. Stage 3: it
// is empty, as the weights are in the optimizer's files alone.
std::string describe_model(const DeepSpeedLayout& layout, const TrainingProgress& progress,
                           const DeepSpeedSettings& settings);

// Of a rank's optimizer file: of each group three storages, the master weights, exp_avg and exp_avg_sq.
std::string describe_optimizer(const DeepSpeedLayout& layout, int rank, const TrainingProgress& progress,
                               const DeepSpeedSettings& settings);

// Elements of such a storage: DeepSpeed strips the padding of stages 1 and 2 from the master weights alone.
int64_t state_numel(const DeepSpeedLayout& layout, size_t group, int rank, StateKind kind);

}  // namespace mpzero::io
