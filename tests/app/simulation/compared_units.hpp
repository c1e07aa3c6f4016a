#pragma once

#include <string>
#include <vector>

#include "app/simulation/unit_record.hpp"

namespace mpzero::plan {

// All units of a model, recorded on a simulated device and on the real one that it stands for. A text for each unit
// whose operations differ, or whose memory differs by more than `tolerance` of the largest peak.
std::vector<std::string> differences(const model::ModelConfig& config, const MicroBatchShape& shape,
                                     const UnitRecorder::RealDevice& real, int64_t max_logits, double tolerance);

}  // namespace mpzero::plan
