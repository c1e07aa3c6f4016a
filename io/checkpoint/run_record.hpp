#pragma once

#include <string>
#include <string_view>

namespace mpzero::io {

// Identifies the training run that saved a checkpoint. A resumed run keeps its id, even on a different number of ranks.
struct RunRecord {
  std::string id;         // 16 hexadecimal digits; empty if saved by DeepSpeed or an early version of mpzero
  std::string init_from;  // absolute folder of the initial weights; empty for random weights
  // Hash of the initial weights, 16 hexadecimal digits (io/weights/initial_weights.hpp); empty for random weights or if
  // unknown.
  std::string init_from_hash{};
  // Absolute path and hash of the initial adapters; both are empty if the adapters are new or unknown, or if there are
  // none.
  std::string init_adapters{};
  std::string init_adapters_hash{};
};

// Returns a random id for a new run.
std::string new_run_id();

bool is_run_id(std::string_view text);

// Returns "run 1a2b3c4d" or "a run without an id", for messages.
std::string show_run(const std::string& id);
// Returns the first digits of the id, or "-" if the id is empty.
std::string short_run_id(const std::string& id);

}  // namespace mpzero::io
