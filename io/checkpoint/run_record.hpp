#pragma once

#include <string>
#include <string_view>

namespace mpzero::io {

// Identifies the training run that saved a checkpoint. A resumed run is the same run, regardless of the format, the
// number of ranks and the ZeRO stage.
struct RunRecord {
  std::string id;         // 16 hexadecimal digits; empty: saved by DeepSpeed, or by an mpzero older than run ids
  std::string init_from;  // the folder of its initial weights, absolute; empty: random weights
  // Hash of those weights, 16 hexadecimal digits (io/weights/initial_weights.hpp). Empty: random weights, or not
  // recorded.
  std::string init_from_hash{};
  // The same for its initial adapters: a PEFT folder or a checkpoint. Empty: new adapters, none, or not recorded.
  std::string init_adapters{};
  std::string init_adapters_hash{};
};

// A random id for a new run.
std::string new_run_id();

bool is_run_id(std::string_view text);

// For tables and sentences: "run 1a2b3c4d", or "a run without an id".
std::string show_run(const std::string& id);
// The first digits of the id; "-" if it is empty.
std::string short_run_id(const std::string& id);

}  // namespace mpzero::io
