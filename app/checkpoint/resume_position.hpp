#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// The position in the training data at which a resumed run continues.
struct ResumedPosition {
  RunPosition position;
  std::string line;      // log line about a changed sequence order; empty: none
  std::string warning;   // warning about repeated or skipped tokens; empty: none
  std::string change{};  // changed sources and weights of a mixture: "train_data a.h5:0.7 -> a.h5:0.5,b.h5:0.5"
};

// Returns the sources of a mixture in --train_data, at their initial positions. Requires setup.data.
std::vector<io::MixtureSource> new_sources(const RunSetup& setup);

// Returns the position in the training data at which the run resumes: the token position in the checkpoint, rounded up
// to a full sequence if seq_length has changed. If the shuffled order has changed, for example because seq_length has
// changed, the epoch continues at the same fraction of the new order; this repeats some sequences and skips others, and
// the warning estimates how many tokens are affected. `known`: the checkpoint's settings.
//
// In a mixture, each source continues at its position in the checkpoint, and new sources start at the beginning. The
// sources of a mixture are identified by their tokens. Changed mixture weights take effect when the run resumes.
ResumedPosition position_after(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                               const nlohmann::json& known);

}  // namespace mpzero
