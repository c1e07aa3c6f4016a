#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/rank_status.hpp"

namespace mpzero {

// What the monitor knows of a rank.
struct RankRecord {
  enum class State : uint8_t {
    kAnswers,
    kFailed,  // it met an error; `error` has its words
    kSilent,  // no word from it for too long
    kLost,    // its connection broke: the process has ended
    kLeft     // it has ended in order
  };
  RankIdentity identity;
  RankStatus status;  // the last that it sent
  State state = State::kAnswers;
  std::string error;
  double quiet = 0;  // seconds since its last word
};

// Which ranks hold the run up and why.
struct Verdict {
  std::vector<int> ranks;  // none: all wait alike
  std::string reason;      // one sentence without its full stop: who, where, what
  std::string remedy;      // one sentence without its full stop
};

// Finds who is to blame: ranks that are gone; else silent ones; else those with an error; else those that have not come
// as far as the others in a collective that others wait in. `records`: by rank, not empty.
Verdict find_culprits(const std::vector<RankRecord>& records);

// Lines for a person: the verdict, then every rank with its step and its last collectives, alike ones together.
// `checkpoint`: the newest one, empty: none; `ras`: what NCCL's own monitor says, empty: nothing.
std::string report_text(const Verdict& verdict, const std::vector<RankRecord>& records, const std::string& checkpoint,
                        const std::string& ras);
// failure.json: time (ISO 8601), job and restart (Slurm's), step, reason, ranks, hosts.
std::string report_json(const Verdict& verdict, const std::vector<RankRecord>& records);

// The tag in `checkpoint_dir`/latest, empty where there is none.
std::string latest_checkpoint(const std::filesystem::path& checkpoint_dir);

}  // namespace mpzero
