#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// Where a run continues in the training data.
struct ResumedPosition {
  RunPosition position;
  std::string line;      // for the log, if the order of the sequences has changed; empty: nothing to report
  std::string warning;   // likewise, if tokens are repeated or left out
  std::string change{};  // of a mixture's sources and weights: "train_data a.h5:0.7 -> a.h5:0.5,b.h5:0.5"
};

// The files of --train_data as a new run on a mixture begins with them. setup.data must be known.
std::vector<io::MixtureSource> new_sources(const RunSetup& setup);

// Continues at the checkpoint's token. With another seq_length that is the next whole sequence of the same epoch: in
// file order fewer than seq_length tokens are left out. A shuffled order depends on seq_length (and on `shuffle`): then
// the epoch continues at the same share of another order, which repeats some sequences and leaves out others; the
// warning estimates how many tokens. `known`: the checkpoint's settings.
//
// Of a mixture each source, identified by its tokens, continues where the checkpoint left it; a new source starts at
// its beginning. Changed weights take effect from here on.
ResumedPosition position_after(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                               const nlohmann::json& known);

}  // namespace mpzero
