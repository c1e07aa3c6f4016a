#pragma once

#include <cstdint>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "io/deepspeed/plan.hpp"

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

}  // namespace mpzero::io
