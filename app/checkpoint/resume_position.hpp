#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/config/run_setup.hpp"
#include "io/checkpoint/stored_checkpoint.hpp"

namespace mpzero {

// A run's position in the training data after a resume.
struct ResumedPosition {
  RunPosition position;
  std::string line;      // for the log, if the order of the sequences has changed; empty: nothing to report
  std::string warning;   // likewise, if tokens are repeated or left out
  std::string change{};  // of a mixture's sources and weights: "train_data a.h5:0.7 -> a.h5:0.5,b.h5:0.5"
};

// The sources of a new run on the mixture of --train_data, at their beginning. setup.data must be known.
std::vector<io::MixtureSource> new_sources(const RunSetup& setup);

// Continues at the checkpoint's token. With another seq_length, that is the next whole sequence of the same epoch: in
// file order, fewer than seq_length tokens are skipped. A shuffled order depends on seq_length (and on `shuffle`), so
// the epoch continues at the same fraction of another order, which repeats some sequences and skips others; the warning
// estimates the number of tokens. `known`: the checkpoint's settings.
//
// In a mixture, each source, identified by its tokens, continues at its position in the checkpoint; a new source starts
// at its beginning. Changed weights apply from here on.
ResumedPosition position_after(const io::StoredCheckpoint& checkpoint, const RunSetup& setup,
                               const nlohmann::json& known);

}  // namespace mpzero
