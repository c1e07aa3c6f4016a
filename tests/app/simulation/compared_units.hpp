#pragma once

#include <string>
#include <vector>

#include "app/simulation/unit_record.hpp"

namespace mpzero::plan {

// Records all units of a model on a simulated device and on the corresponding real device. Returns one line for each
// unit whose operations differ, or whose memory differs by more than `tolerance` times the largest peak.
std::vector<std::string> differences(const model::ModelConfig& config, const MicroBatchShape& shape,
                                     const UnitRecorder::RealDevice& real, int64_t max_logits, double tolerance);

}  // namespace mpzero::plan
