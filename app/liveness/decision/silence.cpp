#include "app/liveness/decision/silence.hpp"

#include <algorithm>
#include <utility>

namespace mpzero {
namespace {

using message::Reach;
using State = RankRecord::State;

constexpr size_t kMostProbed = 16;
constexpr size_t kMostWitnesses = 8;

bool answers(const RankRecord& record, int own, double fresh) {
  if (record.identity.rank == own) return true;
  return (record.state == State::kAnswers || record.state == State::kFailed) && record.reports && record.quiet < fresh;
}

// What is known about the ranks of one node.
struct NodeView {
  bool takes_part = false;     // a rank of it is neither gone nor has left
  std::optional<int> answers;  // the first rank that does
  bool reports = false;        // a rank of it has reported to the judging rank
  std::vector<int> silent;
  int first = 0;  // rank that takes part
  // What others saw of it.
  bool is_mute = false;
  int num_reach = 0;  // nodes that reach it
  int num_cut = 0;    // nodes other than that of the judging rank that do not
  // What it saw of silent nodes.
  bool reaches_silent = false;
  bool misses_silent = false;
};

std::vector<NodeView> view(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh) {
  std::vector<NodeView> views(static_cast<size_t>(nodes.size()));
  for (const RankRecord& record : records) {
    const int rank = record.identity.rank;
    NodeView& node = views[static_cast<size_t>(nodes.node_of(rank))];
    if (record.state == State::kLeft || record.state == State::kLost) continue;
    if (!node.takes_part) node.first = rank;
    node.takes_part = true;
    node.reports = node.reports || record.reports;
    if (record.state == State::kSilent) node.silent.push_back(rank);
    if (!node.answers && answers(record, own, fresh)) node.answers = rank;
  }
  return views;
}

// Keeps `most` of them, spread evenly.
std::vector<int> some_of(const std::vector<int>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<int> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

// Adds up what the nodes saw of each other.
class Judgement {
 public:
  Judgement(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, const Sightings& sightings,
            double fresh)
      : records_(records), nodes_(nodes), own_(own), sightings_(sightings), views_(view(records, nodes, own, fresh)) {
    for (const auto& [pair, what] : sightings_) note(pair.first, pair.second, what);
    for (int node = 0; node < nodes_.size(); ++node) find_unheard(node);
    for (const auto& [pair, what] : sightings_) note_witness(pair.first, pair.second, what);
    for (int node = 0; node < nodes_.size(); ++node) count(node);
  }

  std::optional<Silence> result() const {
    Silence silence = facts();
    if (silence.silent.empty()) return std::nullopt;
    if (own_side_abandoned()) return as(silence, Silence::State::kCutOff, {own_});
    if (const std::vector<int> stopped = stopped_ranks(); !stopped.empty()) {
      return as(silence, Silence::State::kFounded, stopped);
    }
    if (const std::vector<int> blamed = unreached_ranks(); !blamed.empty()) {
      return as(silence, Silence::State::kFounded, blamed);
    }
    if (2 * num_cut_ > num_nodes_) return as(silence, Silence::State::kCutOff, own_side());
    return silence;
  }

 private:
  const NodeView& at(int node) const { return views_[static_cast<size_t>(node)]; }
  bool is_silent(int node) const { return !at(node).answers && !at(node).silent.empty(); }
  void note(int witness, int node, Reach what) {
    NodeView& one = views_[static_cast<size_t>(node)];
    one.is_mute = one.is_mute || what == Reach::kMute;
    if (what == Reach::kAnswers) ++one.num_reach;
    if (what == Reach::kUnreachable && witness != nodes_.node_of(own_)) ++one.num_cut;
  }

  // A rank that has taken over does not know the silence of a node that went together with the former monitor's. Such a
  // node has never reported here, and others cannot reach it.
  void find_unheard(int node) {
    NodeView& one = views_[static_cast<size_t>(node)];
    if (one.answers || one.reports || !one.silent.empty() || one.is_mute || one.num_reach > 0 || one.num_cut == 0)
      return;
    for (const int rank : nodes_.ranks_of(node)) {
      if (records_[static_cast<size_t>(rank)].state == State::kAnswers) one.silent.push_back(rank);
    }
  }

  void note_witness(int witness, int node, Reach what) {
    if (!is_silent(node)) return;
    NodeView& other = views_[static_cast<size_t>(witness)];
    other.reaches_silent = other.reaches_silent || what == Reach::kAnswers;
    other.misses_silent = other.misses_silent || what == Reach::kUnreachable;
  }

  void count(int node) {
    if (!at(node).takes_part) return;
    ++num_nodes_;
    // A node that is reached, but whose ranks do not report here, still reports elsewhere.
    const bool is_reached = at(node).num_reach > 0;
    if (!at(node).answers && at(node).silent.empty() && is_reached) ++num_elsewhere_;
    if (at(node).answers) ++num_answering_;
    if (is_silent(node) && !is_reached) ++num_cut_;
  }

  bool own_side_abandoned() const {
    const std::vector<int>& near = nodes_.ranks_of(nodes_.node_of(own_));
    return std::any_of(near.begin(), near.end(),
                       [this](int rank) { return records_[static_cast<size_t>(rank)].abandoned; });
  }

  std::vector<int> stopped_ranks() const {
    std::vector<int> ranks;
    for (int node = 0; node < nodes_.size(); ++node) {
      if (!at(node).answers && !at(node).is_mute) continue;
      for (const int rank : at(node).silent) {
        if (!records_[static_cast<size_t>(rank)].abandoned) ranks.push_back(rank);
      }
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  std::vector<int> unreached_ranks() const {
    std::vector<int> ranks;
    if (2 * num_answering_ <= num_nodes_) return ranks;
    for (int node = 0; node < nodes_.size(); ++node) {
      if (!is_silent(node)) continue;
      // This node does not hear it either.
      const int against = 1 + at(node).num_cut;
      const int in_favor = num_elsewhere_ + at(node).num_reach;
      if (against > in_favor) ranks.insert(ranks.end(), at(node).silent.begin(), at(node).silent.end());
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  std::vector<int> own_side() const {
    std::vector<int> ranks;
    for (const RankRecord& record : records_) {
      if (record.state == State::kLeft) continue;
      if (at(nodes_.node_of(record.identity.rank)).answers) ranks.push_back(record.identity.rank);
    }
    return ranks;
  }

  Silence facts() const {
    Silence silence;
    const int own_node = nodes_.node_of(own_);
    silence.here.push_back(nodes_.name(own_node));
    for (int node = 0; node < nodes_.size(); ++node) {
      const NodeView& one = at(node);
      silence.silent.insert(silence.silent.end(), one.silent.begin(), one.silent.end());
      if (one.answers && node != own_node) silence.here.push_back(nodes_.name(node));
      if (is_silent(node)) silence.there.push_back(nodes_.name(node));
      if (node == own_node) continue;
      if (one.reaches_silent) silence.reached.push_back(nodes_.name(node));
      if (one.misses_silent && !one.reaches_silent) silence.cut.push_back(nodes_.name(node));
    }
    std::sort(silence.silent.begin(), silence.silent.end());
    return silence;
  }

  static Silence as(Silence silence, Silence::State state, std::vector<int> ranks) {
    silence.state = state;
    silence.ranks = std::move(ranks);
    return silence;
  }

  const std::vector<RankRecord>& records_;
  const NodeMap& nodes_;
  int own_;
  const Sightings& sightings_;
  std::vector<NodeView> views_;
  int num_nodes_ = 0;
  int num_answering_ = 0;  // nodes
  int num_cut_ = 0;        // silent nodes that no one reaches
  int num_elsewhere_ = 0;
};

}  // namespace

NodeMap::NodeMap(const std::vector<RankIdentity>& ranks) {
  std::map<std::string, int> numbers;
  for (const RankIdentity& identity : ranks) {
    const auto [found, is_new] = numbers.emplace(identity.machine, size());
    if (is_new) {
      ranks_.emplace_back();
      names_.push_back(identity.host);
    }
    ranks_[static_cast<size_t>(found->second)].push_back(identity.rank);
    node_of_.push_back(found->second);
  }
}

std::optional<Silence> judge_silence(const std::vector<RankRecord>& records, const NodeMap& nodes, int own,
                                     const Sightings& sightings, double fresh) {
  return Judgement(records, nodes, own, sightings, fresh).result();
}

std::vector<int> ranks_to_probe(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh) {
  std::vector<int> ranks;
  for (const NodeView& node : view(records, nodes, own, fresh)) {
    if (!node.takes_part || node.answers) continue;
    ranks.push_back(node.silent.empty() ? node.first : node.silent.front());
  }
  // Silent ones first.
  std::stable_partition(ranks.begin(), ranks.end(),
                        [&](int rank) { return records[static_cast<size_t>(rank)].state == State::kSilent; });
  if (ranks.size() > kMostProbed) ranks.resize(kMostProbed);
  return ranks;
}

std::vector<int> witnesses(const std::vector<RankRecord>& records, const NodeMap& nodes, int own, double fresh) {
  std::vector<int> ranks;
  for (const NodeView& node : view(records, nodes, own, fresh)) {
    if (node.answers && nodes.node_of(*node.answers) != nodes.node_of(own)) ranks.push_back(*node.answers);
  }
  return some_of(ranks, kMostWitnesses);
}

}  // namespace mpzero
