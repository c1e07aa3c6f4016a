#pragma once

#include <string>
#include <string_view>

namespace mpzero::io {

// Which training run saved something. A run that goes on from a checkpoint is the run that saved it, whatever its
// format, number of ranks and ZeRO stage.
struct RunRecord {
  std::string id;  // 16 hexadecimal digits; empty: saved by DeepSpeed, or by an mpzero from before there were ids
  std::string init_from;  // the folder that its first weights came from, absolute; empty: random weights
  // Of those weights, 16 hexadecimal digits (io/weights/initial_weights.hpp); empty: random ones, or it was not
  // recorded then.
  std::string init_from_hash{};
};

// Of a new run, at random.
std::string new_run_id();

bool is_run_id(std::string_view text);

// For tables and sentences: "run 1a2b3c4d", or "a run without an id".
std::string show_run(const std::string& id);
// The first digits of it; "-" where it is empty.
std::string short_run_id(const std::string& id);

}  // namespace mpzero::io
