#include "app/liveness/decision/succession.hpp"

#include <algorithm>
#include <map>

namespace mpzero {
namespace {

constexpr size_t kAtOnce = 3;   // nodes
constexpr int kMoreIfMute = 7;  // ranks of a node, for each of it that is mute

}  // namespace

Succession::Succession(const NodeMap& nodes, int own) : nodes_(nodes), own_(own) {}

void Succession::begin(const std::vector<bool>& gone) {
  states_.assign(gone.size(), State::kUntried);
  for (size_t rank = 0; rank < gone.size(); ++rank) {
    if (gone[rank]) states_[rank] = State::kOut;
  }
  state(own_) = State::kAnswers;
  num_mute_.assign(static_cast<size_t>(nodes_.size()), 0);
  unreachable_.clear();
  mute_.clear();
  refused_.clear();
}

std::vector<int> Succession::wanted() const {
  std::vector<int> ranks;
  std::map<int, int> room;  // by node
  for (int rank = 0; rank < own_; ++rank) {
    if (state(rank) == State::kOut) continue;
    const int node = nodes_.node_of(rank);
    if (!room.contains(node) && room.size() == kAtOnce) continue;
    int& more = room.emplace(node, 1 + kMoreIfMute * num_mute_[static_cast<size_t>(node)]).first->second;
    if (more-- <= 0) continue;
    ranks.push_back(rank);
    // Those after it are not needed.
    if (state(rank) == State::kAnswers) more = 0;
  }
  return ranks;
}

void Succession::tried(int rank, std::optional<message::Reach> reach) {
  if (rank == own_) return;
  if (!reach) {
    state(rank) = State::kOut;
    return;
  }
  switch (*reach) {
    case message::Reach::kAnswers:
      state(rank) = State::kAnswers;
      break;
    case message::Reach::kRefused:
      state(rank) = State::kOut;
      refused_.push_back(rank);
      break;
    case message::Reach::kMute:
      state(rank) = State::kOut;
      mute_.push_back(rank);
      ++num_mute_[static_cast<size_t>(nodes_.node_of(rank))];
      break;
    case message::Reach::kUnreachable:
      for (const int other : nodes_.ranks_of(nodes_.node_of(rank))) {
        if (other == own_ || state(other) == State::kOut) continue;
        state(other) = State::kOut;
        unreachable_.push_back(other);
      }
      break;
  }
}

std::optional<int> Succession::choice() const {
  const auto first = std::find_if(states_.begin(), states_.end(), [](State one) { return one != State::kOut; });
  if (*first != State::kAnswers) return std::nullopt;
  return static_cast<int>(first - states_.begin());
}

}  // namespace mpzero
