#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/liveness/decision/silence.hpp"
#include "app/liveness/link/rank_message.hpp"

namespace mpzero {

// The search for the rank that the others report to, after the one before is gone: the first rank, by number, that
// answers. The first candidates of three nodes are tried at once, so that a node without power costs one time limit and
// not one for each of its ranks. All ranks choose the same one, as long as they reach the same ones.
//
// A frozen node accepts connections, and its ranks are mute. Each of them that is allows seven more of its node to be
// tried at once: 64 ranks cost three time limits. No rank is out before it has been tried, because the ranks of that
// node, if they run, choose the first one of them.
//
//   outcome of a candidate   what follows
//   kAnswers                 it is chosen once all before it are out
//   kRefused, kMute          it is out; the next rank of its node is a candidate
//   kUnreachable             all ranks of its node are out
//   none: not tried          it is out; nothing is known about it
//
// This rank answers itself: it is chosen if all before it are out.
class Succession {
 public:
  Succession(const NodeMap& nodes, int own);

  // `gone`: by rank, those that are out from the start.
  void begin(const std::vector<bool>& gone);
  // The candidates that are to be tried now, or that have answered already.
  std::vector<int> wanted() const;
  void tried(int rank, std::optional<message::Reach> reach);
  // The rank that is chosen. std::nullopt: wait for the outcome of a candidate.
  std::optional<int> choice() const;
  // Ranks that are out since begin(): those of machines that were unreachable, those that were mute, and those that
  // refused.
  const std::vector<int>& unreachable() const { return unreachable_; }
  const std::vector<int>& mute() const { return mute_; }
  const std::vector<int>& refused() const { return refused_; }

 private:
  enum class State : uint8_t { kUntried, kAnswers, kOut };
  State& state(int rank) { return states_.at(static_cast<size_t>(rank)); }
  State state(int rank) const { return states_.at(static_cast<size_t>(rank)); }

  const NodeMap& nodes_;
  int own_;
  std::vector<State> states_;
  std::vector<int> num_mute_;  // by node
  std::vector<int> unreachable_;
  std::vector<int> mute_;
  std::vector<int> refused_;
};

}  // namespace mpzero
