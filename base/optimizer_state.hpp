#pragma once

namespace mpzero {

// The three fp32 values that AdamW keeps for each parameter.
enum class StateKind { kMaster, kExpAvg, kExpAvgSq };

}  // namespace mpzero
