#include "app/liveness/decision/succession.hpp"

#include <algorithm>
#include <set>

namespace mpzero {
namespace {

constexpr size_t kAtOnce = 3;  // nodes

}  // namespace

Succession::Succession(const NodeMap& nodes, int own) : nodes_(nodes), own_(own) {}

void Succession::begin(const std::vector<bool>& gone) {
  states_.assign(gone.size(), State::kUntried);
  for (size_t rank = 0; rank < gone.size(); ++rank) {
    if (gone[rank]) states_[rank] = State::kOut;
  }
  state(own_) = State::kAnswers;
  silent_.clear();
  refused_.clear();
}

std::vector<int> Succession::wanted() const {
  std::vector<int> ranks;
  std::set<int> tried;
  for (int rank = 0; rank < own_ && ranks.size() < kAtOnce; ++rank) {
    if (state(rank) != State::kOut && tried.insert(nodes_.node_of(rank)).second) ranks.push_back(rank);
  }
  return ranks;
}

void Succession::tried(int rank, message::Reach reach) {
  if (rank == own_) return;
  switch (reach) {
    case message::Reach::kAnswers:
      state(rank) = State::kAnswers;
      break;
    case message::Reach::kRefused:
      state(rank) = State::kOut;
      refused_.push_back(rank);
      break;
    case message::Reach::kMute:
      state(rank) = State::kOut;
      silent_.push_back(rank);
      break;
    case message::Reach::kUnreachable:
      for (const int other : nodes_.ranks_of(nodes_.node_of(rank))) {
        if (other == own_ || state(other) == State::kOut) continue;
        state(other) = State::kOut;
        silent_.push_back(other);
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
