#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/config/run_setup.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// Where a run continues in the training data.
struct ResumedPosition {
  RunPosition position;
  std::string line;     // for the log, if the order of the sequences has changed; empty: nothing to report
  std::string warning;  // likewise, if tokens are repeated or left out
};

// Continues at the checkpoint's token. With another seq_length that is the next whole sequence of the same epoch: in
// file order fewer than seq_length tokens are left out. A shuffled order depends on seq_length (and on `shuffle`): then
// the epoch continues at the same share of another order, which repeats some sequences and leaves out others; the
// warning estimates how many tokens. `known`: the checkpoint's settings.
ResumedPosition position_after(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                               const nlohmann::json& known);

}  // namespace mpzero
