#pragma once

namespace mpzero {

// The three fp32 values that AdamW stores for each parameter.
enum class StateKind { kMaster, kExpAvg, kExpAvgSq };

}  // namespace mpzero
